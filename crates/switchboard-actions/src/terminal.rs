//! The action that types a line into the terminal of an agent.

use door_workspace::TerminalRun;
use switchboard_core::Name;

use crate::actor::Actor;
use crate::error::ActionError;

/// Types a line and Enter into an agent's terminal, and waits for the result.
///
/// The agent has to run under `switchboard run`.
pub async fn run_in_terminal(
    actor: Actor<'_>,
    name: &str,
    input: String,
) -> Result<TerminalRun, ActionError> {
    if input.trim().is_empty() {
        return Err(ActionError::Empty { field: "input" });
    }
    Ok(actor.workspace.run_in_terminal(actor.agent, &Name::parse(name)?, input).await?)
}
