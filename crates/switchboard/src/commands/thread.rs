//! The verb `switchboard thread`.

use clap::Args;

use crate::cli::help::examples;
use crate::cli::options::{FullBodies, Limit};
use crate::commands::tail::print_messages;
use crate::context::Context;
use crate::failure::Failure;

/// Show a whole conversation.
///
/// It shows the messages of the conversation that a message belongs to, oldest first.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard thread msg_1a2b3c"])]
pub(crate) struct Thread {
    /// Any message of the conversation
    id: String,

    #[command(flatten)]
    limit: Limit<200>,

    #[command(flatten)]
    bodies: FullBodies,
}

pub(crate) async fn run(args: Thread, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let id = workspace.resolve_id(&args.id).await?;
    let Some(stored) = workspace.hub().journal().message(id).await? else {
        return Err(switchboard_hub::HubError::UnknownMessage { id: args.id }.into());
    };
    let page = workspace.hub().journal().thread(stored.message.thread, args.limit.limit).await?;
    print_messages(&workspace, &context, &page.items, args.bodies.full).await?;
    if page.more {
        context.printer.note("There is more; show it with a higher --limit.");
    }
    workspace.close().await;
    Ok(())
}
