//! The verb `switchboard ack`.

use clap::Args;
use serde_json::json;
use switchboard_actions::{self as actions, AckStatus, Acknowledge, Acknowledged, ActionError, Actor};

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Acknowledge messages: move them to the archive and notify their senders.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard ack msg_1a2b3c",
    "switchboard ack msg_1a2b3c msg_4d5e6f --note 'merged as 4f2e1d'",
    "switchboard ack msg_1a2b3c --status failed --note 'the tests do not pass'",
])]
pub(crate) struct Ack {
    /// The messages to acknowledge
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// Report the outcome: completed; failed: it could not be done; needs_clarification: you have a question; error: an
    /// error prevented it
    #[arg(long, value_name = "STATUS", default_value = "completed", value_parser = status)]
    status: AckStatus,

    /// Add a note; other agents see it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub(crate) async fn run(args: Ack, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let agent = workspace.hub().directory().await?.canonical(&context.identity()?);
    let request = Acknowledge { ids: args.ids, status: Some(args.status), note: args.note };
    let results = actions::acknowledge(Actor::new(&workspace, &agent), request)
        .await
        .map_err(|error| Failure::of_action("acknowledge", error))?;
    let mut first_failure = None;
    for (_, result) in results {
        let acknowledged = match result {
            Ok(acknowledged) => acknowledged,
            Err(error) => {
                let failure = refusal(&context, error);
                match &first_failure {
                    None => first_failure = Some(failure),
                    // The command returns the first failure; later failures are printed here, or they would be lost.
                    Some(_) => context.printer.note(&failure.message),
                }
                continue;
            }
        };
        let Acknowledged { id, is_new } = acknowledged;
        let native = workspace
            .hub()
            .journal()
            .message(id)
            .await?
            .map(|stored| door_workspace::native_id(&stored.message));
        if context.printer.is_json() {
            let object = json!({ "id": id.to_string(), "native_id": native, "agent": agent.to_string(), "state": "acknowledged", "new": is_new });
            context.printer.object(&object);
        } else {
            let again = if is_new { "" } else { " (it was already)" };
            context
                .printer
                .line(format_args!("{} acknowledged{again}", native.unwrap_or_else(|| id.to_string())));
        }
    }
    workspace.record_heartbeat(&agent).await;
    workspace.close().await;
    first_failure.map_or(Ok(()), Err)
}

/// Converts the error of one message into a failure.
///
/// If no agent name was given, a hint asks for one: a person may be acknowledging messages of an agent.
fn refusal(context: &Context, error: ActionError) -> Failure {
    let failure = Failure::of_action("acknowledge", error);
    match (failure.exit, context.named()) {
        (Exit::NotAllowed, Ok(None)) => {
            failure.hint("say whose mail it is: --from NAME or SWITCHBOARD_AGENT_NAME")
        }
        _ => failure,
    }
}

/// Parses an acknowledgement status.
fn status(text: &str) -> Result<AckStatus, String> {
    let known = AckStatus::ALL.into_iter().find(|status| status.as_str() == text);
    known.ok_or_else(|| {
        let names: Vec<&str> = AckStatus::ALL.into_iter().map(AckStatus::as_str).collect();
        format!("'{}' is not an outcome; use {}", text.escape_debug(), names.join(", "))
    })
}
