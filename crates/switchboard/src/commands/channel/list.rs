//! The verb `switchboard channel list`.

use clap::Args;
use serde_json::json;
use switchboard_sys::clock::format_ago;

use crate::cli::help::examples;
use crate::commands::inbox::count;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// List the channels.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard channel list"])]
pub(crate) struct List {}

pub(super) async fn run(_args: List, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let channels = context.channels(&workspace).await?;
    let directory = workspace.hub().directory().await?;
    let list = channels.list().await?;
    if list.is_empty() {
        context.printer.note("No channels yet; `switchboard channel post` makes one.");
    }
    for summary in list {
        let readers: Vec<String> =
            directory.channel(&summary.channel).map(|agent| agent.id.to_string()).collect();
        let newest = summary.newest.as_ref();
        if context.printer.is_json() {
            context.printer.object(&json!({
                "channel": summary.channel.as_str(),
                "messages": summary.messages,
                "archived": summary.archived,
                "newest": newest.map(|message| &message.timestamp),
                "agents": readers,
            }));
            continue;
        }
        let last = newest.map_or_else(String::new, |message| {
            let when = message.time().map_or_else(String::new, |at| format_ago(workspace.hub().now(), at));
            format!(", newest {when} from {}", show::inline(&message.from))
        });
        let archived = match summary.archived {
            0 => String::new(),
            archived => format!(", {archived} archived"),
        };
        context.printer.line(format_args!(
            "{}  {}{archived}{last}; {}",
            summary.channel,
            count(summary.messages, "message"),
            if readers.is_empty() { "no readers".to_owned() } else { readers.join(", ") }
        ));
    }
    workspace.close().await;
    Ok(())
}
