//! How the link stands, in a file that other processes of the hub read: `hub.nats.json`.
//!
//! Presence is in it as well, because it is never journaled and a command has no link of its own.

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

/// The file, beside the hub's database.
const FILE: &str = "hub.nats.json";

/// Larger than what a thousand hubs have to say.
const LIMIT: u64 = 64 << 20;

/// It is written no more often than this.
const PAUSE: Duration = Duration::from_millis(250);

/// After a write, pause this many times its duration: with thousands of agents the file is large.
const REST: u32 = 20;

/// How the link stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What this hub is called among the others.
    pub hub: Name,
    /// Where the servers are, without passwords.
    pub servers: String,
    /// Whether there is a session with one of them.
    pub state: LinkState,
    /// Since when.
    pub since: Timestamp,
    /// What went wrong last, where there is no session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The other hubs, and who of their agents gave a sign of life.
    #[serde(default)]
    pub hubs: BTreeMap<String, HubStatus>,
}

/// Whether there is a session with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// There is: what is written goes out and comes in.
    Linked,
    /// There is none: what is for other hubs waits.
    Away,
}

/// What is known of another hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubStatus {
    /// When it was last heard, by the clock of this hub.
    pub heard_at: Timestamp,
    /// Who of its agents gave a sign of life.
    pub agents: Vec<AgentStatus>,
}

/// The last sign of life of an agent of another hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its name over there.
    pub name: Name,
    /// What it said it is doing.
    pub status: String,
    /// A sentence more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When, by the clock of this hub.
    pub at: Timestamp,
}

impl Status {
    /// What the link last wrote; `None` where there never was one.
    pub async fn read(hub: &Hub) -> Result<Option<Self>, NatsError> {
        let folder = hub.folder().clone();
        let read = blocking::run(move || folder.read(FILE, LIMIT)).await;
        let Ok(found) = read else { return Ok(None) };
        // One that cannot be read is as good as none: the link writes it again.
        Ok(found?.and_then(|found| serde_json::from_slice(&found.bytes).ok()))
    }
}

/// Tells this process who of the other hubs is awake, as far as the link of this hub has heard.
pub async fn load_remote_presence(hub: &Hub) -> Result<(), NatsError> {
    let Some(status) = Status::read(hub).await? else { return Ok(()) };
    for (realm, heard) in status.hubs {
        let Ok(realm) = Name::parse(&realm) else { continue };
        for agent in heard.agents {
            hub.record_heartbeat(beat(&realm, agent));
        }
    }
    Ok(())
}

/// A sign of life as the hub takes it.
pub(crate) fn beat(hub: &Name, agent: AgentStatus) -> Heartbeat {
    let AgentStatus { name, status, message, at } = agent;
    Heartbeat { agent: AgentId { name, realm: Some(hub.clone()) }, at, status, message }
}

/// The status as the link keeps it.
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

    /// Notes that there is a session.
    pub(crate) fn linked(&self, now: Timestamp) {
        self.update(|status| {
            status.error = None;
            if status.state != LinkState::Linked {
                (status.state, status.since) = (LinkState::Linked, now);
            }
        });
    }

    /// Notes that there is none, and why; says whether there was one, or the reason is another.
    pub(crate) fn away(&self, now: Timestamp, reason: &str) -> bool {
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

    /// Notes what was heard of another hub.
    pub(crate) fn heard(&self, hub: &Name, heard: HubStatus) {
        self.update(|status| drop(status.hubs.insert(hub.to_string(), heard)));
    }

    fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.inner.status.lock());
        self.inner.changed.notify_one();
    }

    /// Writes the file whenever something changed.
    pub(crate) async fn keep(&self) {
        loop {
            self.inner.changed.notified().await;
            let began = Instant::now();
            self.write().await;
            tokio::time::sleep(PAUSE.max(began.elapsed() * REST)).await;
        }
    }

    /// Writes the file now.
    pub(crate) async fn write(&self) {
        let bytes = to_bytes(&*self.inner.status.lock());
        let folder = self.inner.folder.clone();
        let write = move || folder.replace_with(FILE, &bytes, 0o600, Durability::Later);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
            tracing::warn!(error = %error, "{FILE} could not be written");
        }
    }
}
