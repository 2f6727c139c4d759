//! The members of swarms, as far as they live elsewhere.

use rusqlite::params;
use switchboard_core::{AgentId, AgentRecord, Name, Route};

use super::{changed, put_agent};
use crate::error::HubError;
use crate::store::writer::Work;

/// A member of a swarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// What it is called here.
    pub name: Name,
    /// What it is there for, where that is known.
    pub role: Option<String>,
}

/// Makes these the members of a swarm, and no others; says whether that changed anything.
///
/// They are known as `name@swarm`, so that no agent of ours is ever taken for one of theirs.
pub(crate) fn put_peers(tx: &mut Work<'_>, swarm: &Name, peers: &[Peer]) -> Result<bool, HubError> {
    let directory = tx.directory.value.clone();
    let mut has_changed = false;
    for known in directory.peers(swarm) {
        if !peers.iter().any(|peer| peer.name == known.id.name) {
            tx.db.execute("DELETE FROM agents WHERE name = ?1", params![known.id.to_string()])?;
            has_changed = true;
        }
    }
    for peer in peers {
        let id = AgentId { name: peer.name.clone(), realm: Some(swarm.clone()) };
        let known = directory.agent(&id);
        let id = known.map_or(id, |known| known.id.clone());
        let record = AgentRecord {
            routes: vec![Route::Peer { agent: id.clone() }],
            id,
            role: peer.role.clone(),
            team: None,
            registered_at: known.map_or(tx.now, |known| known.registered_at),
        };
        if known != Some(&record) {
            put_agent(tx, &record)?;
            has_changed = true;
        }
    }
    if has_changed {
        changed(tx)?;
    }
    Ok(has_changed)
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
