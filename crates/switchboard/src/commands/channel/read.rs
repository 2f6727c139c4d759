//! The verb `switchboard channel read`.

use clap::Args;

use super::{channel_named, print};
use crate::cli::help::examples;
use crate::cli::options::Limit;
use crate::context::Context;
use crate::failure::Failure;

/// Show the messages of a channel, ordered by time and then by id.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard channel read --channel general -n 50",
    "switchboard channel read --channel general --all",
])]
pub(crate) struct Read {
    /// The channel
    #[arg(long, value_name = "NAME")]
    channel: String,

    #[command(flatten)]
    limit: Limit<20>,

    /// Show all messages
    #[arg(long, conflicts_with = "limit")]
    all: bool,

    /// Show only what came after this message
    #[arg(long, value_name = "ID", conflicts_with_all = ["all", "limit"])]
    since: Option<String>,
}

pub(super) async fn run(args: Read, context: Context) -> Result<(), Failure> {
    let channel = channel_named(&args.channel)?;
    let workspace = context.open().await?;
    let channels = context.channels(&workspace).await?;
    let reading = match &args.since {
        Some(id) => channels.read_after(&channel, id).await?,
        None => channels.read(&channel, (!args.all).then_some(args.limit.limit)).await?,
    };
    print(&context, &reading, workspace.hub().now())?;
    workspace.close().await;
    Ok(())
}
