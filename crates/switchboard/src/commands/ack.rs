//! `switchboard ack`

use clap::Args;
use serde_json::json;
use switchboard_core::AgentId;

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Acknowledge messages: move them to the archive and notify their senders.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard ack msg_1a2b3c",
    "switchboard ack msg_1a2b3c msg_4d5e6f --note 'merged as 4f2e1d'",
])]
pub(crate) struct Ack {
    /// The messages to acknowledge
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// Add a note; other agents see it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub(crate) async fn run(args: Ack, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let directory = workspace.hub().directory().await?;
    let agent: AgentId = directory.canonical(&context.identity()?);
    for text in &args.ids {
        let id = workspace.resolve_id_for(&agent, text).await?;
        let done = workspace.acknowledge(&agent, id, args.note.clone()).await.map_err(|error| {
            let failure = Failure::from(error);
            match (failure.exit, context.named()) {
                (Exit::NotAllowed, Ok(None)) => {
                    failure.hint("say whose mail it is: --from NAME or SWITCHBOARD_AGENT_NAME")
                }
                _ => failure,
            }
        })?;
        let native = workspace
            .hub()
            .journal()
            .message(id)
            .await?
            .map(|stored| door_workspace::native_id(&stored.message));
        if context.printer.is_json() {
            let object = json!({ "id": id.to_string(), "native_id": native, "agent": agent.to_string(), "state": "acknowledged", "new": done.is_some() });
            context.printer.object(&object);
        } else {
            let again = if done.is_some() { "" } else { " (it was already)" };
            context
                .printer
                .line(format_args!("{} acknowledged{again}", native.unwrap_or_else(|| id.to_string())));
        }
    }
    workspace.record_heartbeat(&agent).await;
    workspace.close().await;
    Ok(())
}
