//! The agents of other hubs, as far as those tell of them.

use rusqlite::params;
use switchboard_core::{AgentId, AgentRecord, Name, Route, TeamRecord};

use super::{RemoteAgent, changed, put_agent, put_team};
use crate::error::HubError;
use crate::store::writer::Work;

/// Makes these the agents of other hubs, and no others; says whether that changed anything.
///
/// They are known as `name@hub`, so that no agent of ours is ever taken for one of theirs.
pub(crate) fn put_remote_agents(
    tx: &mut Work<'_>,
    hubs: &[(Name, Vec<RemoteAgent>)],
) -> Result<bool, HubError> {
    let mut has_changed = false;
    for (hub, residents) in hubs {
        has_changed |= put_remote_agents_of(tx, hub, residents)?;
    }
    if has_changed {
        changed(tx)?;
    }
    Ok(has_changed)
}

fn put_remote_agents_of(tx: &mut Work<'_>, hub: &Name, residents: &[RemoteAgent]) -> Result<bool, HubError> {
    let directory = tx.directory.value.clone();
    let mut has_changed = false;
    for known in directory.residents(hub) {
        if !residents.iter().any(|resident| resident.name == known.id.name) {
            tx.db.execute("DELETE FROM agents WHERE name = ?1", params![known.id.to_string()])?;
            has_changed = true;
        }
    }
    for resident in residents {
        let id = AgentId { name: resident.name.clone(), realm: Some(hub.clone()) };
        let known = directory.agent(&id);
        let mut routes = vec![Route::Hub { hub: hub.clone() }];
        routes.extend(resident.channels.iter().map(|channel| Route::Channel { channel: channel.clone() }));
        let record = AgentRecord {
            id: known.map_or(id, |known| known.id.clone()),
            role: resident.role.clone(),
            team: resident.team.clone(),
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
#[path = "residents_tests.rs"]
mod tests;
