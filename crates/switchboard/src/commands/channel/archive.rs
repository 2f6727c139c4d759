//! `switchboard channel archive`

use clap::Args;
use jiff::SignedDuration;
use serde_json::json;

use super::channel_named;
use crate::commands::inbox::count;
use crate::context::Context;
use crate::failure::Failure;

/// Move old messages of a channel to archive/YYYY-MM/ in its folder.
///
/// A channel of many thousand files takes time to list. What is archived is read by `channel read` as before;
/// other programs find it in the folder of its month.
#[derive(Debug, Args)]
pub(crate) struct Archive {
    /// The channel
    #[arg(required_unless_present = "named")]
    channel: Option<String>,

    /// The same, as the other verbs take it
    #[arg(long = "channel", value_name = "NAME", conflicts_with = "channel")]
    named: Option<String>,

    /// How old a message has to be, in days
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    older_than: u32,
}

pub(super) async fn run(args: Archive, context: Context) -> Result<(), Failure> {
    let channel = channel_named(args.channel.or(args.named).as_deref().unwrap_or_default())?;
    let workspace = context.open().await?;
    let channels = context.channels(&workspace).await?;
    let age = SignedDuration::from_hours(i64::from(args.older_than) * 24);
    let archived = channels.archive(&channel, age).await?;
    if context.printer.is_json() {
        let line = json!({ "channel": channel.as_str(), "moved": archived.moved, "kept": archived.skipped });
        context.printer.object(&line);
    } else {
        context
            .printer
            .line(format_args!("{} moved to the archive of {channel}", count(archived.moved, "message")));
        if archived.skipped > 0 {
            context.printer.note(format_args!(
                "{} of that age left in place: written within the last hour, or not taken in (see `switchboard doctor`).",
                count(archived.skipped, "file")
            ));
        }
    }
    workspace.close().await;
    Ok(())
}
