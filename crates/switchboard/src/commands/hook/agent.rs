//! Whose mail a hook is about.

use door_workspace::Workspace;
use serde_json::Value;
use switchboard_core::{AgentId, Name};

use super::Client;
use crate::context::Context;
use crate::failure::Failure;

/// Larger than any state a workspace has.
const STATE_LIMIT: u64 = 64 << 20;

/// The agent: the one that the launcher or the environment names, the one of `--agent`, or else the one agent of this
/// client that the workspace knows. None where that could be several, because mail shown to the wrong one is lost to
/// the right one.
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
        // What is shown to a model is not shown to the person.
        return Ok((!agent.is_human()).then(|| directory.canonical(&agent)));
    }
    let namesake = AgentId::local(Name::parse(client.word())?);
    if let Some(known) = directory.agent(&namesake) {
        return Ok(Some(known.id.clone()));
    }
    let state = workspace.tree().root().read("state.json", STATE_LIMIT).ok().flatten();
    let state: Value = state.and_then(|found| serde_json::from_slice(&found.bytes).ok()).unwrap_or_default();
    let mut agents = of_client(&state, client).filter_map(|name| Name::parse(name).ok().map(AgentId::local));
    let only = agents.next().filter(|_| agents.next().is_none());
    Ok(only.filter(|agent| directory.agent(agent).is_some()))
}

/// The agents that say they are reached by this client.
fn of_client(state: &Value, client: Client) -> impl Iterator<Item = &str> {
    let is_its = move |record: &Value| {
        record["interface"]
            .as_str()
            .is_some_and(|interface| interface.to_ascii_lowercase().contains(client.word()))
    };
    let agents = state["chatAgents"].as_object().into_iter().flatten();
    agents.filter(move |(_, record)| is_its(record)).map(|(name, _)| name.as_str())
}
