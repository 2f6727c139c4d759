//! `switchboard channel read`

use clap::Args;

use super::{channel_named, print};
use crate::context::Context;
use crate::failure::Failure;

/// Show the messages of a channel, by time and then by id.
#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The channel
    #[arg(long, value_name = "NAME")]
    channel: String,

    /// How many of the newest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, conflicts_with_all = ["all", "since"])]
    last: usize,

    /// All of them
    #[arg(long)]
    all: bool,

    /// Everything after this message
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    since: Option<String>,
}

pub(super) async fn run(args: Read, context: Context) -> Result<(), Failure> {
    let channel = channel_named(&args.channel)?;
    let workspace = context.open().await?;
    let channels = context.channels(&workspace).await?;
    let reading = match &args.since {
        Some(id) => channels.read_after(&channel, id).await?,
        None => channels.read(&channel, (!args.all).then_some(args.last)).await?,
    };
    print(&context, &reading, workspace.hub().now())?;
    workspace.close().await;
    Ok(())
}
