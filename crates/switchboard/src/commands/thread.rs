//! `switchboard thread`

use clap::Args;

use crate::commands::tail::print_messages;
use crate::context::Context;
use crate::failure::Failure;

/// Show the conversation a message belongs to, oldest first.
#[derive(Debug, Args)]
pub(crate) struct Thread {
    /// Any message of it
    id: String,

    /// Most messages to show
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: usize,

    /// Whole bodies, however long
    #[arg(long)]
    full: bool,
}

pub(crate) async fn run(args: Thread, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let id = workspace.resolve_id(&args.id).await?;
    let Some(stored) = workspace.hub().message(id).await? else {
        return Err(switchboard_hub::HubError::UnknownMessage { id: args.id }.into());
    };
    let page = workspace.hub().thread(stored.message.thread, args.limit).await?;
    print_messages(&workspace, &context, &page.items, args.full).await?;
    if page.more {
        context.printer.note("There is more; show it with a higher --limit.");
    }
    workspace.close().await;
    Ok(())
}
