//! The verb `switchboard tail`.

use clap::Args;
use door_workspace::Workspace;
use serde_json::json;
use switchboard_hub::{Activity, Page, Stored};
use switchboard_sys::clock::format_ago;

use crate::cli::help::examples;
use crate::cli::options::{FullBodies, Limit};
use crate::commands::inbox::seq_of;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Number of messages per read while following.
const STEP: usize = 200;

/// Show the newest messages of all agents, and follow new ones.
///
/// The oldest of them comes first.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard tail -n 50",
    "switchboard tail --follow --json",
])]
pub(crate) struct Tail {
    /// Keep showing messages as they arrive
    #[arg(short, long)]
    follow: bool,

    #[command(flatten)]
    limit: Limit<20>,

    /// Show only what came after this message
    #[arg(long, value_name = "ID")]
    since: Option<String>,

    #[command(flatten)]
    bodies: FullBodies,

    /// With --json: also show what agents did besides sending messages, as objects with "event"
    #[arg(long)]
    events: bool,
}

pub(crate) async fn run(args: Tail, context: Context) -> Result<(), Failure> {
    // Following also ingests dropped files; a single listing does not.
    let open = if args.follow { Some(context.open_running().await?) } else { None };
    let workspace = match &open {
        Some(open) => open.workspace.clone(),
        None => context.open().await?,
    };
    let hub = workspace.hub();
    let mut changes = hub.changes();
    let mut last = 0;
    let mut done = hub.agents().last_activity().await?;
    if let Some(id) = &args.since {
        last = seq_of(&workspace, None, id).await?;
    } else {
        let mut page = hub.journal().newest(args.limit.limit.max(1)).await?;
        if args.limit.limit == 0 {
            // With `-n 0`, show only messages that arrive from now on.
            last = page.items.pop().map_or(0, |stored| stored.seq);
        }
        // Show only activity since the first of the listed messages.
        let first = page.items.first().filter(|_| page.more).map_or(0, |stored| stored.seq);
        let doings =
            if args.limit.limit == 0 { Vec::new() } else { hub.agents().activity(0, first, STEP).await? };
        done = doings.last().map_or(done, |doing| doing.id);
        last = show_page(&workspace, &context, &args, &page, doings).await?.max(last);
    }
    loop {
        let page = hub.journal().entries(last, STEP).await?;
        let doings = hub.agents().activity(done, 0, STEP).await?;
        let more = page.more || doings.len() == STEP;
        done = doings.last().map_or(done, |doing| doing.id);
        last = show_page(&workspace, &context, &args, &page, doings).await?.max(last);
        if more {
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

/// Prints a page of messages, interleaved with activity; returns the position of the last message.
async fn show_page(
    workspace: &Workspace,
    context: &Context,
    args: &Tail,
    page: &Page<Stored>,
    doings: Vec<Activity>,
) -> Result<i64, Failure> {
    let mut doings = doings.into_iter().peekable();
    for stored in &page.items {
        while let Some(doing) = doings.next_if(|doing| doing.after < stored.seq) {
            show_doing(workspace, context, args, &doing);
        }
        print_messages(workspace, context, std::slice::from_ref(stored), args.bodies.full).await?;
    }
    for doing in doings {
        show_doing(workspace, context, args, &doing);
    }
    Ok(page.items.last().map_or(0, |stored| stored.seq))
}

/// Prints activity of an agent that is not a message.
fn show_doing(workspace: &Workspace, context: &Context, args: &Tail, doing: &Activity) {
    let Activity { at, agent, what, thing, detail, .. } = doing;
    if context.printer.is_json() {
        // Scripts that do not pass `--events` rely on one message per line.
        if args.events {
            context.printer.object(&json!({
                "event": what,
                "agent": agent.to_string(),
                "thing": thing,
                "detail": detail,
                "at": at.to_string(),
            }));
        }
        return;
    }
    let dim = anstyle::Style::new().dimmed();
    let detail = detail.as_ref().map(|detail| format!(" ({})", show::inline(detail))).unwrap_or_default();
    let ago = format_ago(workspace.hub().now(), *at);
    context.printer.line(format_args!("{dim}· {agent} {what} {}{detail}  {ago}{dim:#}", show::inline(thing)));
}

/// Prints messages with the delivery state of each.
pub(crate) async fn print_messages(
    workspace: &Workspace,
    context: &Context,
    messages: &[Stored],
    full: bool,
) -> Result<(), Failure> {
    for stored in messages {
        let receipt = workspace.hub().journal().receipt(stored.message.id).await?;
        let state = receipt.as_ref().map_or("queued", |(_, receipt)| show::state_name(receipt));
        if context.printer.is_json() {
            context.printer.object(&show::MessageLine::new(stored, state));
        } else {
            let (now, reader) = (workspace.hub().now(), context.reader()?);
            context.printer.line(show::message_text(stored, state, now, full, reader));
        }
    }
    Ok(())
}
