//! Lookup of the agent for which a hook runs.

use door_workspace::Workspace;
use serde_json::Value;
use switchboard_core::{AgentId, Name};

use super::Client;
use crate::context::Context;
use crate::failure::Failure;

/// Maximum size of the state file that is read, larger than any workspace state.
const STATE_LIMIT: u64 = 64 << 20;

/// Returns the agent for which the hook runs; `None` if it is ambiguous.
///
/// The launcher or the environment takes precedence, then `--agent`, then the only agent of this client in the
/// workspace. With several agents there is no guess, because a message shown to the wrong agent is lost for the right
/// one.
pub(super) async fn of(
    client: Client,
    default: Option<&str>,
    context: &Context,
    workspace: &Workspace,
) -> Result<Option<AgentId>, Failure> {
    let directory = workspace.hub().directory().await?;
    let named = match (context.session_identity()?, default) {
        (None, Some(name)) => Some(AgentId::local(Name::parse(name)?)),
        (named, _) => named,
    };
    if let Some(agent) = named {
        // Messages to the person are never shown to a model.
        return Ok((!agent.is_human()).then(|| directory.canonical(&agent)));
    }
    let namesake = AgentId::local(Name::parse(client.cli_name())?);
    if let Some(known) = directory.agent(&namesake) {
        return Ok(Some(known.id.clone()));
    }
    let state = workspace.tree().root().read("state.json", STATE_LIMIT).ok().flatten();
    let state: Value = state.and_then(|found| serde_json::from_slice(&found.bytes).ok()).unwrap_or_default();
    let mut agents = of_client(&state, client).filter_map(|name| Name::parse(name).ok().map(AgentId::local));
    let only = agents.next().filter(|_| agents.next().is_none());
    Ok(only.filter(|agent| directory.agent(agent).is_some()))
}

/// Lists the agents that registered with this client's interface.
fn of_client(state: &Value, client: Client) -> impl Iterator<Item = &str> {
    let is_its = move |record: &Value| {
        record["interface"]
            .as_str()
            .is_some_and(|interface| interface.to_ascii_lowercase().contains(client.cli_name()))
    };
    let agents = state["chatAgents"].as_object().into_iter().flatten();
    agents.filter(move |(_, record)| is_its(record)).map(|(name, _)| name.as_str())
}
