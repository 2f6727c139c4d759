//! The verb `switchboard channel tail`.

use clap::Args;
use door_channels::{ChannelError, Transcript};

use super::{channel_named, print};
use crate::cli::help::examples;
use crate::cli::options::Limit;
use crate::context::Context;
use crate::failure::Failure;

/// Show the newest messages of a channel, and follow new ones.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard channel tail --channel general -n 5"])]
pub(crate) struct Tail {
    /// The channel
    #[arg(long, value_name = "NAME")]
    channel: String,

    #[command(flatten)]
    limit: Limit<20>,
}

pub(super) async fn run(args: Tail, context: Context) -> Result<(), Failure> {
    let channel = channel_named(&args.channel)?;
    let workspace = context.open().await?;
    let channels = context.channels(&workspace).await?;
    // All existing messages count as shown, including those beyond the limit.
    let seen = match channels.read(&channel, None).await {
        Err(ChannelError::UnknownChannel { near, .. }) if near.is_empty() => {
            context
                .printer
                .note(format_args!("There is no channel {channel} yet; waiting for its first message."));
            Transcript::default()
        }
        read => read?,
    };
    let mut follower = channels.follow(&channel, &seen).await?;
    let mut first = seen;
    let extra = first.messages.len().saturating_sub(args.limit.limit);
    first.messages.drain(..extra);
    print(&context, &first, workspace.hub().now())?;
    loop {
        let reading = follower.next().await?;
        print(&context, &reading, workspace.hub().now())?;
    }
}
