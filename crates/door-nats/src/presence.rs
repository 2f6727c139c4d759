//! Presence and roster of this hub, as it tells the other hubs.
//!
//! Two buckets. In one, each hub has its roster, and each agent that gave a sign of life an entry of its own: only what
//! changed is written, and the server publishes it again for all hubs. In the other, each hub has a heartbeat of a few bytes
//! that the server forgets; others list it, and it is sent to no hub. An agent that goes on as it is costs nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store};
use futures_util::{StreamExt, stream};
use switchboard_core::{AgentId, Directory, Name};
use tokio::time::{Instant, MissedTickBehavior};

use crate::error::NatsError;
use crate::roster::build_roster;
use crate::session::Session;
use crate::subject::token;
use crate::wire::{AgentActivity, AgentPresence, HubHeartbeat, MAX_AGENTS, VERSION, to_bytes, truncate};

/// How often to look for changes that nothing announces, such as an agent that falls silent.
const LOOK: Duration = Duration::from_secs(1);

/// Signs of life within this time are told together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// How long after a start agents are heard that were awake before it.
const SETTLING: Duration = Duration::from_secs(15);

/// How many heartbeats a hub gives within the time after which it counts as away.
pub(crate) const HEARTBEATS_PER_TTL: u32 = 4;

/// How many entries are written at once.
const AT_ONCE: usize = 64;

/// What tells this run of this hub from all others.
pub(crate) struct HubRun {
    /// Names this run, in the order of their beginnings.
    pub(crate) id: String,
    /// Names this hub, whatever it is called.
    pub(crate) home: String,
}

/// What other hubs know of this one already.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The roster, as it stands in the bucket.
    pub(crate) roster: Vec<u8>,
    /// The revision of its entry.
    pub(crate) revision: u64,
    /// Presence, by the tokens of agents.
    pub(crate) signs: HashMap<String, AgentActivity>,
}

/// Tells the others who lives here and who is awake, until something fails.
pub(crate) async fn run(
    session: &Session,
    run: &HubRun,
    published: Published,
) -> Result<Infallible, NatsError> {
    let mut publisher =
        PresencePublisher { session, published, seen: None, forgets_at: Instant::now() + SETTLING };
    let mut received = session.received.subscribe();
    let mut signs = session.hub.presence_changes();
    let mut own_entry = session.own_entry.subscribe();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let every = session.presence_ttl / HEARTBEATS_PER_TTL;
    let mut beats = tokio::time::interval_at(Instant::now() + every, every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Before anything else: who is told of agents has to know that their hub is there.
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
                // Another hub of this name told of its own before it made room.
                if *own_entry.borrow_and_update() > publisher.published.revision {
                    (publisher.seen, publisher.published.roster) = (None, Vec::new());
                }
            }
            changed = signs.changed() => {
                changed.map_err(|_| NatsError::Lost)?;
                tokio::time::sleep(DEBOUNCE).await;
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
    /// The directory that the roster was made of.
    seen: Option<Arc<Directory>>,
    /// Not before that is it told that an agent is not heard any more: after a start they are heard one by one.
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
                put(&session.agents, &key, bytes.clone(), "keep who lives here").await?;
            self.published.roster = bytes;
        }
        self.seen = Some(directory.clone());
        Ok(())
    }

    /// Tells what agents do other than was told.
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
        let action = "keep who is awake";
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

/// What an agent of this hub does, if it ever gave a sign of life.
fn sign(session: &Session, id: &AgentId) -> Option<AgentActivity> {
    let presence = session.hub.presence(id);
    let silent = session.hub.now().duration_since(presence.since?).as_millis();
    Some(AgentActivity {
        name: id.name.clone(),
        status: truncate(&presence.status?),
        message: presence.message.as_deref().map(truncate),
        silent_ms: u64::try_from(silent).unwrap_or(0),
        is_awake: presence.awareness == switchboard_core::Awareness::Awake,
    })
}

/// Refuses to go by a name under which another hub is awake. To be asked before anything is read or told under it: who
/// reads in another's name takes its messages away.
///
/// What an earlier run of this hub left is none of another's; what another one left that was killed runs out.
pub(crate) async fn check_name(session: &Session, run: &HubRun) -> Result<(), NatsError> {
    match read_own_heartbeat(session).await?.and_then(|beat| beat.home) {
        Some(home) if home != run.home => Err(NatsError::NameTaken { hub: session.me.clone() }),
        _ => Ok(()),
    }
}

/// The heartbeat under the name of this hub, of this run or another.
async fn read_own_heartbeat(session: &Session) -> Result<Option<HubHeartbeat>, NatsError> {
    let entry =
        session.presence.entry(token(&session.me)).await.map_err(NatsError::server("tell of other hubs"))?;
    let entry = entry.filter(|entry| entry.operation == Operation::Put);
    Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
}

/// Gives a heartbeat. Fails where another hub of this name gives them as well.
async fn beat(session: &Session, run: &HubRun, is_first: bool) -> Result<(), NatsError> {
    // An earlier run of this hub may have left its last heartbeat.
    let is_left = |known: &HubHeartbeat| is_first && known.home.as_ref() == Some(&run.home);
    // Runs are numbered by when they began: of two that go by one name, the later one makes room.
    if read_own_heartbeat(session).await?.is_some_and(|known| known.run < run.id && !is_left(&known)) {
        return Err(NatsError::NameTaken { hub: session.me.clone() });
    }
    let beat = HubHeartbeat {
        v: VERSION,
        hub: session.me.clone(),
        run: run.id.clone(),
        home: Some(run.home.clone()),
    };
    put(&session.presence, &token(&session.me), to_bytes(&beat), "keep who is awake").await?;
    Ok(())
}

/// Tells all hubs that this one starts or stops. One that misses it finds out from the heartbeats.
async fn announce(session: &Session, is_there: bool) -> Result<(), NatsError> {
    let subject = session.subjects.live_hub(&session.me);
    let payload = if is_there { "up" } else { "down" };
    session.client.publish(subject, payload.into()).await.map_err(NatsError::server("tell other hubs"))
}

/// Tells the others that this hub is going.
pub(crate) async fn announce_stop(session: &Session) {
    let goodbye = async {
        let subject = format!("$KV.{}.{}", session.subjects.presence(), token(&session.me));
        // An entry that is merely deleted would still be listed.
        let _ = session.presence.stream.purge().filter(subject).await;
        let _ = announce(session, false).await;
        let _ = session.client.flush().await;
    };
    let _ = tokio::time::timeout(LOOK, goodbye).await;
}

/// True if an entry is of the hub that its key names. The key is what a server checks.
pub(crate) fn is_key_of(hub: &Name, key: &str) -> bool {
    token(hub) == key
}
