//! Status file of the link, `hub.nats.json`, which other processes of the hub read.
//!
//! The status includes remote presence, which is never journaled and which a command without a link needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use switchboard_core::{AgentId, Heartbeat, Name};
use switchboard_hub::Hub;
use switchboard_sys::blocking;
use switchboard_sys::files::{Dir, Durability};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::NatsError;
use crate::wire::to_bytes;

/// Name of the status file, which is next to the hub's database.
const FILE: &str = "hub.nats.json";

/// Size limit of the status file, larger than the status of a thousand hubs.
const LIMIT: u64 = 64 << 20;

/// Minimum pause between two writes.
const PAUSE: Duration = Duration::from_millis(250);

/// Pause after a write, as a multiple of the write's duration.
///
/// With thousands of agents the file is large, so writes are throttled.
const REST: u32 = 20;

/// Status of the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name of this hub among the linked hubs.
    pub hub: Name,
    /// Server addresses, without passwords.
    pub servers: String,
    /// State of the link: whether a session is open.
    pub state: LinkState,
    /// Time of the last state change.
    pub since: Timestamp,
    /// Last error, while no session is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Other hubs and the presence of their agents.
    #[serde(default)]
    pub hubs: BTreeMap<String, HubStatus>,
}

/// State of the link to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// A session is open, so messages are sent and received.
    Linked,
    /// No session is open, so messages for other hubs wait in the journal.
    Away,
}

/// Status of another hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubStatus {
    /// Last time this hub heard from the other hub, by the clock of this hub.
    pub heard_at: Timestamp,
    /// Agents of that hub that ever sent a heartbeat.
    pub agents: Vec<AgentStatus>,
}

/// Last heartbeat of an agent of another hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Name of the agent on its hub.
    pub name: Name,
    /// Activity, as the agent reported it.
    pub status: String,
    /// Optional sentence about the activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time of the heartbeat, by the clock of this hub.
    pub at: Timestamp,
}

impl Status {
    /// Reads the last status; `None` if no link has ever written one.
    pub async fn read(hub: &Hub) -> Result<Option<Self>, NatsError> {
        let folder = hub.folder().clone();
        let read = blocking::run(move || folder.read(FILE, LIMIT)).await;
        let Ok(found) = read else { return Ok(None) };
        // An unreadable file counts as missing, because the link rewrites it.
        Ok(found?.and_then(|found| serde_json::from_slice(&found.bytes).ok()))
    }
}

/// Loads the presence of other hubs' agents from the status file into this process.
pub async fn load_remote_presence(hub: &Hub) -> Result<(), NatsError> {
    let Some(status) = Status::read(hub).await? else { return Ok(()) };
    for (realm, hub_status) in status.hubs {
        let Ok(realm) = Name::parse(&realm) else { continue };
        for agent in hub_status.agents {
            hub.agents().record_heartbeat(beat(&realm, agent));
        }
    }
    Ok(())
}

/// Converts a remote agent's status to a heartbeat for the hub.
pub(crate) fn beat(hub: &Name, agent: AgentStatus) -> Heartbeat {
    let AgentStatus { name, status, message, at } = agent;
    Heartbeat { agent: AgentId { name, realm: Some(hub.clone()) }, at, status, message }
}

/// Holds the status and writes the status file. Clones share one status.
#[derive(Clone)]
pub(crate) struct StatusWriter {
    inner: Arc<Inner>,
}

struct Inner {
    status: Mutex<Status>,
    changed: Notify,
    folder: Dir,
}

impl StatusWriter {
    pub(crate) fn new(hub: &Hub, me: Name, servers: String) -> Self {
        let since = hub.now();
        let (state, hubs) = (LinkState::Away, BTreeMap::new());
        let error = Some("not connected yet".to_owned());
        let status = Mutex::new(Status { hub: me, servers, state, since, error, hubs });
        let changed = Notify::new();
        changed.notify_one();
        Self { inner: Arc::new(Inner { status, changed, folder: hub.folder().clone() }) }
    }

    /// Records that a session is open.
    pub(crate) fn record_linked(&self, now: Timestamp) {
        self.update(|status| {
            status.error = None;
            if status.state != LinkState::Linked {
                (status.state, status.since) = (LinkState::Linked, now);
            }
        });
    }

    /// Records that no session is open; returns true if the state or the reason changed.
    pub(crate) fn record_away(&self, now: Timestamp, reason: &str) -> bool {
        let mut is_news = false;
        self.update(|status| {
            is_news = status.state != LinkState::Away || status.error.as_deref() != Some(reason);
            if status.state != LinkState::Away {
                (status.state, status.since) = (LinkState::Away, now);
            }
            status.error = Some(reason.to_owned());
        });
        is_news
    }

    /// Records the status of another hub.
    pub(crate) fn record_hub(&self, hub: &Name, hub_status: HubStatus) {
        self.update(|status| drop(status.hubs.insert(hub.to_string(), hub_status)));
    }

    fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.inner.status.lock());
        self.inner.changed.notify_one();
    }

    /// Writes the status file after each change, throttled.
    pub(crate) async fn run(&self) {
        loop {
            self.inner.changed.notified().await;
            let began = Instant::now();
            self.write().await;
            tokio::time::sleep(PAUSE.max(began.elapsed() * REST)).await;
        }
    }

    /// Writes the status file immediately.
    pub(crate) async fn write(&self) {
        let bytes = to_bytes(&*self.inner.status.lock());
        let folder = self.inner.folder.clone();
        let write = move || folder.replace_with(FILE, &bytes, 0o600, Durability::Unsynced);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
            tracing::warn!(error = %error, "{FILE} could not be written");
        }
    }
}
