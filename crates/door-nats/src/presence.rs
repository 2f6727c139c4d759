//! Publishes this hub's roster, presence and heartbeat to other hubs.
//!
//! There are two buckets. The agents bucket has one roster per hub and one entry per agent that ever sent a heartbeat:
//! only changes are written, and the server republishes them to all hubs. The presence bucket has one small heartbeat
//! entry per hub, which expires: other hubs list these entries, and the server does not republish them. An agent
//! without changes costs nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store};
use futures_util::{StreamExt, stream};
use switchboard_core::{AgentId, Directory, Name};
use switchboard_sys::debounce::Debounce;
use tokio::time::{Instant, MissedTickBehavior};

use crate::error::NatsError;
use crate::roster::build_roster;
use crate::session::Session;
use crate::subject::token;
use crate::wire::{AgentActivity, AgentPresence, HubHeartbeat, MAX_AGENTS, VERSION, to_bytes, truncate};

/// Poll interval for changes that cause no event, such as an agent that falls silent.
const LOOK: Duration = Duration::from_secs(1);

/// Time after a start during which agents that were awake before may still send their first heartbeat.
const SETTLING: Duration = Duration::from_secs(15);

/// Heartbeats per presence TTL.
pub(crate) const HEARTBEATS_PER_TTL: u32 = 4;

/// Maximum number of concurrent writes of bucket entries.
const AT_ONCE: usize = 64;

/// Identity of one run of this hub.
pub(crate) struct HubRun {
    /// Id of the run; later runs have higher ids.
    pub(crate) id: String,
    /// Home id of the hub, independent of its name.
    pub(crate) home: String,
}

/// State of this hub that is already published.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Roster as stored in the bucket.
    pub(crate) roster: Vec<u8>,
    /// Revision of the roster entry.
    pub(crate) revision: u64,
    /// Presence by agent token.
    pub(crate) signs: HashMap<String, AgentActivity>,
}

/// Publishes the roster and the presence of this hub until an error occurs.
pub(crate) async fn run(
    session: &Session,
    run: &HubRun,
    published: Published,
) -> Result<Infallible, NatsError> {
    let mut publisher =
        PresencePublisher { session, published, seen: None, forgets_at: Instant::now() + SETTLING };
    let mut received = session.received.subscribe();
    let mut signs = session.hub.agents().presence_changes();
    let mut own_entry = session.own_entry.subscribe();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let every = session.presence_ttl / HEARTBEATS_PER_TTL;
    let mut beats = tokio::time::interval_at(Instant::now() + every, every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The heartbeat comes first, because a hub that receives presence must know that this hub is online.
    beat(session, run, true).await?;
    announce(session, true).await?;
    loop {
        tokio::select! {
            biased;
            _ = beats.tick() => beat(session, run, false).await?,
            _ = look.tick() => {}
            changed = received.changed() => {
                changed.map_err(|_| NatsError::Lost)?;
                publisher.seen = None;
            }
            changed = own_entry.changed() => {
                changed.map_err(|_| NatsError::Lost)?;
                // Another hub with the same name overwrote the entry before it stopped, so the roster is published
                // again.
                if *own_entry.borrow_and_update() > publisher.published.revision {
                    (publisher.seen, publisher.published.roster) = (None, Vec::new());
                }
            }
            changed = signs.changed() => {
                changed.map_err(|_| NatsError::Lost)?;
                Debounce::PUBLISHED_PRESENCE.wait().await;
                signs.borrow_and_update();
            }
        }
        let directory = session.hub.directory().await?;
        publisher.publish_roster(&directory).await?;
        publisher.publish_activity(&directory).await?;
    }
}

struct PresencePublisher<'l> {
    session: &'l Session,
    published: Published,
    /// The directory from which the roster was built.
    seen: Option<Arc<Directory>>,
    /// Time from which removals are published; after a start, heartbeats arrive only one by one.
    forgets_at: Instant,
}

impl PresencePublisher<'_> {
    async fn publish_roster(&mut self, directory: &Arc<Directory>) -> Result<(), NatsError> {
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, directory)) {
            return Ok(());
        }
        let session = self.session;
        let max_payload = session.client.server_info().max_payload;
        let received = session.received.borrow().clone();
        let bytes = to_bytes(&build_roster(&session.me, directory, &received, max_payload));
        if bytes != self.published.roster {
            let key = token(&session.me);
            self.published.revision =
                put(&session.agents, &key, bytes.clone(), "save the agents of this hub").await?;
            self.published.roster = bytes;
        }
        self.seen = Some(directory.clone());
        Ok(())
    }

    /// Publishes the agents whose activity changed.
    async fn publish_activity(&mut self, directory: &Directory) -> Result<(), NatsError> {
        let session = self.session;
        let own = directory.agents().filter(|agent| agent.id.realm.is_none()).take(MAX_AGENTS);
        let signs: HashMap<String, AgentActivity> =
            own.filter_map(|agent| Some((token(&agent.id.name), sign(session, &agent.id)?))).collect();
        let is_told = |key: &String, sign: &AgentActivity| {
            self.published.signs.get(key).is_some_and(|published| published.is_like(sign))
        };
        let changed: Vec<(String, AgentActivity)> = signs
            .iter()
            .filter(|(key, sign)| !is_told(key, sign))
            .map(|(key, sign)| (key.clone(), sign.clone()))
            .collect();
        let forgets = self.forgets_at <= Instant::now();
        let gone: Vec<String> =
            self.published.signs.keys().filter(|key| forgets && !signs.contains_key(*key)).cloned().collect();
        let key_of = |agent: &str| format!("{}.{agent}", token(&session.me));
        let action = "save the presence of agents";
        let mut puts = Vec::with_capacity(changed.len());
        for (agent, sign) in &changed {
            let sign = AgentPresence { v: VERSION, hub: session.me.clone(), agent: sign.clone() };
            let (store, key, bytes) = (session.agents.clone(), key_of(agent), to_bytes(&sign));
            puts.push(async move { put(&store, &key, bytes, action).await });
        }
        let mut puts = stream::iter(puts).buffer_unordered(AT_ONCE);
        while let Some(written) = puts.next().await {
            written?;
        }
        for agent in &gone {
            session.agents.delete(key_of(agent)).await.map_err(NatsError::server(action))?;
            self.published.signs.remove(agent);
        }
        self.published.signs.extend(changed);
        Ok(())
    }
}

async fn put(store: &Store, key: &str, bytes: Vec<u8>, action: &'static str) -> Result<u64, NatsError> {
    store.put(key, bytes.into()).await.map_err(NatsError::server(action))
}

/// Returns the activity of an agent of this hub; `None` if the agent never sent a heartbeat.
fn sign(session: &Session, id: &AgentId) -> Option<AgentActivity> {
    let presence = session.hub.agents().presence(id);
    let silent = session.hub.now().duration_since(presence.since?).as_millis();
    Some(AgentActivity {
        name: id.name.clone(),
        status: truncate(&presence.status?),
        message: presence.message.as_deref().map(truncate),
        silent_ms: u64::try_from(silent).unwrap_or(0),
        is_awake: presence.state == switchboard_core::PresenceState::Awake,
    })
}

/// Rejects the hub's name if another hub is online under that name.
///
/// Must be called before anything is read or published under the name: a hub that uses another hub's name would consume
/// that hub's messages. The heartbeat of an earlier run of this hub is ignored. The heartbeat of another hub that was
/// killed expires.
pub(crate) async fn check_name(session: &Session, run: &HubRun) -> Result<(), NatsError> {
    match read_own_heartbeat(session).await?.and_then(|beat| beat.home) {
        Some(home) if home != run.home => Err(NatsError::NameTaken { hub: session.me.clone() }),
        _ => Ok(()),
    }
}

/// Reads the heartbeat under this hub's name, whichever run or hub wrote it.
async fn read_own_heartbeat(session: &Session) -> Result<Option<HubHeartbeat>, NatsError> {
    let entry = session
        .presence
        .entry(token(&session.me))
        .await
        .map_err(NatsError::server("read the presence of hubs"))?;
    let entry = entry.filter(|entry| entry.operation == Operation::Put);
    Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
}

/// Writes a heartbeat. Fails if another hub with the same name also sends heartbeats.
async fn beat(session: &Session, run: &HubRun, is_first: bool) -> Result<(), NatsError> {
    // The entry is the last heartbeat of an earlier run of this hub.
    let is_left = |known: &HubHeartbeat| is_first && known.home.as_ref() == Some(&run.home);
    // Run ids are ordered by start time, so of two hubs with one name, the later one stops.
    if read_own_heartbeat(session).await?.is_some_and(|known| known.run < run.id && !is_left(&known)) {
        return Err(NatsError::NameTaken { hub: session.me.clone() });
    }
    let beat = HubHeartbeat {
        v: VERSION,
        hub: session.me.clone(),
        run: run.id.clone(),
        home: Some(run.home.clone()),
    };
    put(&session.presence, &token(&session.me), to_bytes(&beat), "save the presence of agents").await?;
    Ok(())
}

/// Announces to all hubs that this hub starts or stops.
///
/// A hub that misses the announcement learns the change from the heartbeats.
async fn announce(session: &Session, is_there: bool) -> Result<(), NatsError> {
    let subject = session.subjects.live_hub(&session.me);
    let payload = if is_there { "up" } else { "down" };
    session
        .client
        .publish(subject, payload.into())
        .await
        .map_err(NatsError::server("send presence to other hubs"))
}

/// Removes this hub's heartbeat and announces that the hub stops.
pub(crate) async fn announce_stop(session: &Session) {
    let goodbye = async {
        let subject = format!("$KV.{}.{}", session.subjects.presence(), token(&session.me));
        // The entry is purged, because a deleted entry would still be listed.
        let _ = session.presence.stream.purge().filter(subject).await;
        let _ = announce(session, false).await;
        let _ = session.client.flush().await;
    };
    let _ = tokio::time::timeout(LOOK, goodbye).await;
}

/// Returns true if an entry's key belongs to the hub that the entry names.
///
/// The check is needed because the server authorizes by key.
pub(crate) fn is_key_of(hub: &Name, key: &str) -> bool {
    token(hub) == key
}
