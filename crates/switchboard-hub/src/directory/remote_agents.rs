//! Directory entries of the agents of other hubs.

use rusqlite::params;
use switchboard_core::{AgentId, AgentRecord, Name, Route, TeamRecord};

use super::{RemoteAgent, bump_version, put_agent, put_team};
use crate::error::HubError;
use crate::store::writer::Transaction;

/// Replaces the agents of other hubs; returns true if anything changed.
///
/// They are known as `name@hub`, so that they are never mistaken for agents of this hub.
pub(crate) fn put_remote_agents(
    tx: &mut Transaction<'_>,
    hubs: &[(Name, Vec<RemoteAgent>)],
) -> Result<bool, HubError> {
    let mut has_changed = false;
    for (hub, agents) in hubs {
        has_changed |= put_remote_agents_of(tx, hub, agents)?;
    }
    if has_changed {
        bump_version(tx)?;
    }
    Ok(has_changed)
}

fn put_remote_agents_of(
    tx: &mut Transaction<'_>,
    hub: &Name,
    agents: &[RemoteAgent],
) -> Result<bool, HubError> {
    let directory = tx.directory.value.clone();
    let mut has_changed = false;
    for known in directory.agents_of_hub(hub) {
        if !agents.iter().any(|agent| agent.name == known.id.name) {
            tx.db.execute("DELETE FROM agents WHERE name = ?1", params![known.id.to_string()])?;
            has_changed = true;
        }
    }
    for agent in agents {
        let id = AgentId { name: agent.name.clone(), realm: Some(hub.clone()) };
        let known = directory.agent(&id);
        let mut routes = vec![Route::Hub { hub: hub.clone() }];
        routes.extend(agent.channels.iter().map(|channel| Route::Channel { channel: channel.clone() }));
        let record = AgentRecord {
            id: known.map_or(id, |known| known.id.clone()),
            role: agent.role.clone(),
            team: agent.team.clone(),
            routes,
            registered_at: known.map_or(tx.now, |known| known.registered_at),
        };
        if known == Some(&record) {
            continue;
        }
        has_changed = true;
        if let Some(team) = record.team.as_ref().filter(|team| directory.team(team).is_none()) {
            let title = team.to_string();
            put_team(tx, &TeamRecord { id: team.clone(), title, composite: false, created_at: tx.now })?;
        }
        put_agent(tx, &record)?;
    }
    Ok(has_changed)
}

#[cfg(test)]
#[path = "remote_agents_tests.rs"]
mod tests;
