//! Directory entries of peers: members of a swarm in other hubs.

use rusqlite::{Connection, params};
use switchboard_core::{AgentId, AgentRecord, Directory, Name, Route};

use super::{bump_version, put_agent};
use crate::error::HubError;
use crate::store::writer::Transaction;

/// Prefix of the `meta` keys of the swarms that this hub has joined.
const SWARM: &str = "swarm ";

/// Peer: another member of a swarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Name of the peer in this hub.
    pub name: Name,
    /// Role of the peer, if known.
    pub role: Option<String>,
}

/// Replaces the other members of a swarm.
///
/// With `None`, removes them, because this hub has left the swarm. Returns true if anything changed. The members are
/// known as `name@swarm`, so that they are never mistaken for agents of this hub.
pub(crate) fn put_peers(
    tx: &mut Transaction<'_>,
    swarm: &Name,
    peers: Option<&[Peer]>,
) -> Result<bool, HubError> {
    let directory = tx.directory.value.clone();
    let mut has_changed = put_swarm(tx, swarm, peers.is_some())?;
    let peers = peers.unwrap_or_default();
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
        bump_version(tx)?;
    }
    Ok(has_changed)
}

/// Records whether this hub is in a swarm; returns true if anything changed.
fn put_swarm(tx: &Transaction<'_>, swarm: &Name, is_member: bool) -> rusqlite::Result<bool> {
    let key = format!("{SWARM}{}", swarm.as_str().to_lowercase());
    let rows_changed = if is_member {
        tx.db.execute(
            "INSERT OR IGNORE INTO meta (key, value) VALUES (?1, ?2)",
            params![key, swarm.as_str()],
        )?
    } else {
        tx.db.execute("DELETE FROM meta WHERE key = ?1", params![key])?
    };
    Ok(rows_changed > 0)
}

/// Loads the swarms that this hub is in.
pub(super) fn load_swarms(db: &Connection, directory: &mut Directory) -> rusqlite::Result<()> {
    let mut swarms = db.prepare("SELECT value FROM meta WHERE key GLOB ?1 || '*'")?;
    let mut rows = swarms.query([SWARM])?;
    while let Some(row) = rows.next()? {
        if let Ok(swarm) = Name::parse(&row.get::<_, String>(0)?) {
            directory.put_swarm(swarm);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
