//! `switchboard ack`

use clap::Args;
use serde_json::json;
use switchboard_core::AgentId;

use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Say that you are done with messages: they move to the archive and their senders are told.
#[derive(Debug, Args)]
pub(crate) struct Ack {
    /// The messages
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// What came of it, for the sender's receipt
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
        let native =
            workspace.hub().message(id).await?.map(|stored| door_workspace::native_id(&stored.message));
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
