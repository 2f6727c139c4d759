//! The verb `switchboard resume`.

use std::time::Duration;

use clap::Args;
use door_workspace::{Workspace, WorkspaceError, native_id};
use serde_json::json;
use switchboard_core::{AgentId, Delivery, Directory, suggest_similar};
use switchboard_hub::{HubError, ResumedMessage, Selection, StoppedMessage};
use switchboard_sys::clock::format_ago;

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::person::{Consent, require_person};
use crate::show;

/// Timeout for delivering the resumed messages in this process. Undelivered messages remain queued.
const ARRIVAL: Duration = Duration::from_secs(2);

/// List messages stopped by loop limits or budgets, or deliver them.
///
/// A message is stopped when replies go in circles, come too fast, or exceed an agent's budget. A resumed message is
/// delivered, and its limits start again from zero.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard resume  # lists stopped messages",
    "switchboard resume msg_1a2b3c",
    "switchboard resume --all",
])]
pub(crate) struct Resume {
    /// A message of the conversation to resume, or an agent [default: list stopped messages]
    #[arg(value_name = "ID|AGENT", conflicts_with = "all")]
    what: Option<String>,

    /// Resume everything
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: Resume, context: Context) -> Result<(), Failure> {
    if args.what.is_none() && !args.all {
        return list(&context).await;
    }
    let what = args.what.as_deref().map_or_else(|| "everything that was stopped".to_owned(), show::plain);
    require_person(&context, &format!("resume {what}"), args.consent.yes)?;
    let open = context.open_door().await?;
    let result = resume(&open.workspace, &context, args.what.as_deref()).await;
    open.close().await;
    result
}

async fn list(context: &Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let stopped = workspace.hub().breakers().stopped().await?;
    for entry in &stopped {
        print_stopped(&workspace, context, entry);
    }
    context.printer.note(if stopped.is_empty() {
        "Nothing is stopped."
    } else {
        "`switchboard resume ID` lets one go on, with what was stopped for the same reason."
    });
    workspace.close().await;
    Ok(())
}

async fn resume(workspace: &Workspace, context: &Context, what: Option<&str>) -> Result<(), Failure> {
    let hub = workspace.hub();
    let selection = match what {
        None => Selection::All,
        Some(text) => selection(workspace, text).await?,
    };
    let resumed = hub.breakers().resume(selection).await?;
    if resumed.is_empty() {
        let message = match what {
            Some(what) => format!("nothing of '{}' is stopped", show::inline(what)),
            None => "nothing is stopped".to_owned(),
        };
        return Err(Failure::new("nothing_stopped", Exit::NotFound, message)
            .hint("`switchboard resume` lists what is stopped"));
    }
    for entry in &resumed {
        let settled = hub.deliveries().wait_until_settled(entry.stopped.stored.message.id);
        let _ = tokio::time::timeout(ARRIVAL, settled).await;
        print_resumed(context, entry);
    }
    Ok(())
}

/// Resolves an agent by its name, or a conversation by the id of any of its messages.
async fn selection(workspace: &Workspace, text: &str) -> Result<Selection, Failure> {
    let hub = workspace.hub();
    if let Ok(agent) = text.parse::<AgentId>()
        && hub.directory().await?.agent(&agent).is_some()
    {
        return Ok(Selection::Agent(agent));
    }
    let id = match workspace.resolve_id(text).await {
        Err(WorkspaceError::Hub(HubError::UnknownMessage { .. })) => {
            return Err(unknown(text, &*hub.directory().await?));
        }
        found => found?,
    };
    let thread = hub.journal().message(id).await?.map_or(id, |stored| stored.message.thread);
    Ok(Selection::Thread(thread))
}

/// Builds the failure for a text that names neither an agent nor a message.
fn unknown(text: &str, directory: &Directory) -> Failure {
    let names: Vec<String> = directory.agents().map(|agent| agent.id.to_string()).collect();
    let near = suggest_similar(text, names.iter().map(String::as_str));
    let near = near.first().map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
    let message = format!("no agent and no message is called '{}'{near}", show::inline(text));
    Failure::new("unknown_target", Exit::NotFound, message)
        .hint("`switchboard resume` lists what is stopped, with its ids")
}

fn print_stopped(workspace: &Workspace, context: &Context, entry: &StoppedMessage) {
    let message = &entry.stored.message;
    if context.printer.is_json() {
        context.printer.object(&json!({
            "id": message.id.to_string(),
            "native_id": native_id(message),
            "from": message.from.to_string(),
            "to": message.to.to_string(),
            "thread": message.thread.to_string(),
            "reason": entry.reason,
            "stopped_at": entry.at.to_string(),
        }));
    } else {
        let ago = format_ago(workspace.hub().now(), entry.at);
        context.printer.line(format_args!(
            "{} → {}  {}  {ago}",
            message.from,
            message.to,
            native_id(message)
        ));
        context.printer.line(format_args!("    {}", show::inline(&entry.reason)));
    }
}

fn print_resumed(context: &Context, entry: &ResumedMessage) {
    let message = &entry.stopped.stored.message;
    let names = |deliveries: &[Delivery]| -> Vec<String> {
        deliveries.iter().map(|delivery| delivery.agent.to_string()).collect()
    };
    let (to, lost) = (names(&entry.deliveries), names(&entry.lost));
    if context.printer.is_json() {
        context.printer.object(&json!({
            "id": message.id.to_string(),
            "native_id": native_id(message),
            "from": message.from.to_string(),
            "resumed": to,
            "not_resumed": lost,
        }));
        return;
    }
    if !to.is_empty() {
        context.printer.line(format_args!("{} goes on to {}", native_id(message), to.join(", ")));
    }
    if !lost.is_empty() {
        context.printer.line(format_args!(
            "{} does not go on to {}: they are behind another hub. Have it sent again.",
            native_id(message),
            lost.join(", ")
        ));
    }
}
