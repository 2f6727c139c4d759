//! Tool that types into another agent's terminal.

use door_workspace::TerminalOutcome;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use switchboard_actions as actions;

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const RUN_IN_TERMINAL: &str = "Type one line and Enter into the terminal of an agent that runs under \
     `switchboard run`, and return the result.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunInTerminal {
    /// The terminal's agent.
    name: String,
    /// The line; Enter is added.
    input: String,
}

pub(super) async fn run_in_terminal(ctx: &ToolContext<'_>, input: RunInTerminal) -> Outcome {
    let name = &input.name;
    let run = actions::run_in_terminal(ctx.actor(ctx.me()?), name, input.input)
        .await
        .map_err(|error| ToolError::of("run_in_terminal", error))?;
    let (status, reason) = match &run.outcome {
        TerminalOutcome::Executed => {
            let text = format!("Typed into the terminal of {name} ({}).", run.native_id);
            return Ok(Answer::new(text, json!({ "id": run.native_id, "status": "executed" })));
        }
        TerminalOutcome::Queued { reason } => {
            let text = format!("{} waits: {reason}", run.native_id);
            return Ok(Answer::new(
                text,
                json!({ "id": run.native_id, "status": "queued", "reason": reason }),
            ));
        }
        TerminalOutcome::Unattended { reason } => ("will not be typed", reason),
        TerminalOutcome::Failed { reason } => ("failed", reason),
        TerminalOutcome::Refused { reason } => ("was refused", reason),
    };
    Err(ToolError::new(format!("{} {status}: {reason}", run.native_id)))
}
