//! The store: identities and swarms in the hub's notes.
//!
//! The store is loaded as a whole, and each change is one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use switchboard_core::{Door, Name, describe_json_error};
use switchboard_hub::{Hub, HubError, NotesTransaction};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::keys::SecretKey;
use crate::model::{Identity, Swarm};

/// Topic of the notes with identities, followed by the topics of swarms and of the store version.
const IDENTITY: &str = "identity";
const SWARM: &str = "swarm";
const VERSION: &str = "version";

/// A snapshot of the store. Clones are cheap, because they share unchanged values.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreSnapshot {
    pub(crate) identities: BTreeMap<PeerId, Arc<Identity>>,
    pub(crate) swarms: BTreeMap<(PeerId, Uuid), Arc<Swarm>>,
    /// The signing keys that this process has read.
    pub(crate) keys: BTreeMap<PeerId, Arc<SecretKey>>,
    pub(crate) version: u64,
}

impl StoreSnapshot {
    /// Finds a swarm by its local name, together with our agent that is a member.
    pub(crate) fn by_realm(&self, realm: &Name) -> Option<(&PeerId, &Arc<Swarm>)> {
        self.swarms.iter().find(|(_, swarm)| swarm.realm == *realm).map(|((agent, _), swarm)| (agent, swarm))
    }

    /// Returns the swarms of one agent.
    pub(crate) fn swarms_of<'b>(&'b self, agent: &'b PeerId) -> impl Iterator<Item = &'b Arc<Swarm>> + Clone {
        self.swarms.iter().filter(move |((owner, _), _)| owner == agent).map(|(_, swarm)| swarm)
    }
}

/// Result of a change. On an error, nothing was written.
pub(crate) type Change<T> = Result<T, SwarmError>;

/// Returns the version of the store, which counts the changes by all processes.
pub(crate) async fn version(hub: &Hub) -> Result<u64, HubError> {
    let noted = hub.notes(Door::Swarm).get(VERSION, VERSION).await?;
    Ok(noted.and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Loads the store. A damaged note is skipped and logged; the others are loaded.
pub(crate) async fn load(hub: &Hub) -> Result<StoreSnapshot, HubError> {
    let mut snapshot = StoreSnapshot { version: version(hub).await?, ..StoreSnapshot::default() };
    for (key, text) in hub.notes(Door::Swarm).all(IDENTITY).await? {
        match parse_note::<Identity>(&key, &text) {
            Ok(identity) => drop(snapshot.identities.insert(identity.agent.clone(), Arc::new(identity))),
            Err(error) => tracing::error!(error = %error, "an agent's record was skipped"),
        }
    }
    for (key, text) in hub.notes(Door::Swarm).all(SWARM).await? {
        let owner = key.split_once('/').and_then(|(agent, _)| PeerId::parse(agent).ok());
        match (owner, parse_note::<Swarm>(&key, &text)) {
            (Some(owner), Ok(swarm)) => {
                drop(snapshot.swarms.insert((owner, swarm.swarm_id), Arc::new(swarm)));
            }
            (_, Err(error)) => tracing::error!(error = %error, "a swarm's record was skipped"),
            (None, Ok(_)) => tracing::error!(key, "a swarm's record was skipped: it has no owner"),
        }
    }
    Ok(snapshot)
}

/// Edits an agent's record. Setting the record to `None` removes it.
pub(crate) async fn edit_identity<T: Send + 'static>(
    hub: &Hub,
    agent: &PeerId,
    change: impl FnOnce(&mut Option<Identity>) -> Change<T> + Send + 'static,
) -> Result<T, SwarmError> {
    edit(hub, IDENTITY, agent.to_string(), change).await
}

/// Edits a swarm's record. Setting the record to `None` removes it.
pub(crate) async fn edit_swarm<T: Send + 'static>(
    hub: &Hub,
    agent: &PeerId,
    swarm: Uuid,
    change: impl FnOnce(&mut Option<Swarm>) -> Change<T> + Send + 'static,
) -> Result<T, SwarmError> {
    edit(hub, SWARM, format!("{agent}/{swarm}"), change).await
}

/// Edits one note in a transaction. Writes nothing if the change fails or has no effect.
async fn edit<V, T>(
    hub: &Hub,
    topic: &'static str,
    key: String,
    change: impl FnOnce(&mut Option<V>) -> Change<T> + Send + 'static,
) -> Result<T, SwarmError>
where
    V: Serialize + DeserializeOwned + PartialEq + Clone + Send + 'static,
    T: Send + 'static,
{
    let work = move |notes: &mut NotesTransaction<'_, '_>| -> Result<Change<T>, HubError> {
        let text = notes.get(topic, &key)?;
        let before = match text.as_deref().map(|text| parse_note::<V>(&key, text)).transpose() {
            Ok(before) => before,
            Err(error) => return Ok(Err(error)),
        };
        let mut value = before.clone();
        let answer = match change(&mut value) {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        if value != before {
            let text = value.as_ref().map(|value| serde_json::to_string(value).unwrap_or_default());
            notes.put(topic, &key, text.as_deref())?;
            let version = notes.get(VERSION, VERSION)?.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            notes.put(VERSION, VERSION, Some(&(version + 1).to_string()))?;
        }
        Ok(Ok(answer))
    };
    hub.notes(Door::Swarm).edit(work).await?
}

fn parse_note<V: DeserializeOwned>(key: &str, text: &str) -> Change<V> {
    serde_json::from_str(text)
        .map_err(|error| SwarmError::Damaged { key: key.to_owned(), problem: describe_json_error(&error) })
}
