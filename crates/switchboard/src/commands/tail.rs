//! `switchboard tail`

use clap::Args;
use door_workspace::Workspace;
use switchboard_hub::{Page, Stored};

use crate::commands::inbox::seq_of;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// How many messages are read at a time while following.
const STEP: usize = 200;

/// Show the newest messages of everyone, oldest first.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Go on showing messages as they come
    #[arg(short, long)]
    follow: bool,

    /// How many to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Everything after this message instead
    #[arg(long, value_name = "ID")]
    since: Option<String>,

    /// Whole bodies, however long
    #[arg(long)]
    full: bool,
}

pub(crate) async fn run(args: Tail, context: Context) -> Result<(), Failure> {
    // Following is a good moment to take in what others drop; a single look takes in nothing.
    let open = if args.follow { Some(context.open_running().await?) } else { None };
    let workspace = match &open {
        Some(open) => open.workspace.clone(),
        None => context.open().await?,
    };
    let hub = workspace.hub();
    let mut changes = hub.changes();
    let mut last = if let Some(id) = &args.since {
        seq_of(&workspace, workspace.find(id).await?).await?
    } else {
        let page = hub.newest(args.limit).await?;
        show_page(&workspace, &context, &args, &page).await?
    };
    loop {
        let page = hub.journal(last, STEP).await?;
        last = show_page(&workspace, &context, &args, &page).await?.max(last);
        if page.more {
            continue;
        }
        if !args.follow {
            break;
        }
        changes.next().await;
    }
    workspace.close().await;
    Ok(())
}

/// Prints a page; returns the place of its last message.
async fn show_page(
    workspace: &Workspace,
    context: &Context,
    args: &Tail,
    page: &Page<Stored>,
) -> Result<i64, Failure> {
    print_messages(workspace, context, &page.items, args.full).await?;
    Ok(page.items.last().map_or(0, |stored| stored.seq))
}

/// Prints messages with what became of each.
pub(crate) async fn print_messages(
    workspace: &Workspace,
    context: &Context,
    messages: &[Stored],
    full: bool,
) -> Result<(), Failure> {
    for stored in messages {
        let receipt = workspace.hub().receipt(stored.message.id).await?;
        let state = receipt.as_ref().map_or("queued", |(_, receipt)| show::standing(receipt));
        if context.printer.is_json() {
            context.printer.object(&show::MessageLine::new(stored, state));
        } else {
            context.printer.line(show::message_text(stored, state, workspace.hub().now(), full));
        }
    }
    Ok(())
}
