//! The verb `switchboard channel archive`.

use clap::Args;
use jiff::SignedDuration;
use serde_json::json;

use super::channel_named;
use crate::cli::help::examples;
use crate::cli::values::lifetime;
use crate::commands::inbox::count;
use crate::context::Context;
use crate::failure::Failure;

/// Move old messages of a channel to archive/YYYY-MM/ in its folder.
///
/// Listing a folder of many thousand files is slow. `channel read` still finds archived messages; other programs find
/// them in the folder of their month.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard channel archive general",
    "switchboard channel archive general --older-than 7d",
])]
pub(crate) struct Archive {
    /// The channel
    #[arg(required_unless_present = "named")]
    channel: Option<String>,

    /// The channel
    #[arg(long = "channel", value_name = "NAME", conflicts_with = "channel")]
    named: Option<String>,

    /// Archive messages older than this
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = lifetime)]
    older_than: SignedDuration,
}

pub(super) async fn run(args: Archive, context: Context) -> Result<(), Failure> {
    let channel = channel_named(args.channel.or(args.named).as_deref().unwrap_or_default())?;
    let workspace = context.open().await?;
    let channels = context.channels(&workspace).await?;
    let archived = channels.archive(&channel, args.older_than).await?;
    if context.printer.is_json() {
        let line = json!({ "channel": channel.as_str(), "moved": archived.moved, "kept": archived.skipped });
        context.printer.object(&line);
    } else {
        context
            .printer
            .line(format_args!("{} moved to the archive of {channel}", count(archived.moved, "message")));
        if archived.skipped > 0 {
            context.printer.note(format_args!(
                "{} of that age left in place: written within the last hour, or not ingested (see `switchboard doctor`).",
                count(archived.skipped, "file")
            ));
        }
    }
    workspace.close().await;
    Ok(())
}
