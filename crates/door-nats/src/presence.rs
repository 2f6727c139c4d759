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
use crate::link::Link;
use crate::roster::roster;
use crate::subject::token;
use crate::wire::{AwakeAgent, Beat, MOST_AGENTS, Sign, VERSION, shortened, to_bytes};

/// How often to look for changes that nothing announces, such as an agent that falls silent.
const LOOK: Duration = Duration::from_secs(1);

/// Signs of life within this time are told together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// How long after a start agents are heard that were awake before it.
const SETTLING: Duration = Duration::from_secs(15);

/// How many heartbeats a hub gives within the time after which it counts as away.
pub(crate) const BEATS: u32 = 4;

/// How many entries are written at once.
const AT_ONCE: usize = 64;

/// What tells this run of this hub from all others.
pub(crate) struct Run {
    /// Names this run, in the order of their beginnings.
    pub(crate) id: String,
    /// Names this hub, whatever it is called.
    pub(crate) home: String,
}

/// What other hubs know of this one already.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The roster, as it stands in the bucket.
    pub(crate) roster: Vec<u8>,
    /// The revision of its entry.
    pub(crate) revision: u64,
    /// Presence, by the tokens of agents.
    pub(crate) signs: HashMap<String, AwakeAgent>,
}

/// Tells the others who lives here and who is awake, until something fails.
pub(crate) async fn tell(link: &Link, run: &Run, told: Told) -> Result<Infallible, NatsError> {
    let mut teller = Teller { link, told, seen: None, forgets_at: Instant::now() + SETTLING };
    let mut received = link.received.subscribe();
    let mut signs = link.hub.presence_changes();
    let mut own_entry = link.own_entry.subscribe();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let every = link.presence_ttl / BEATS;
    let mut beats = tokio::time::interval_at(Instant::now() + every, every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Before anything else: who is told of agents has to know that their hub is there.
    beat(link, run, true).await?;
    announce(link, true).await?;
    loop {
        tokio::select! {
            biased;
            _ = beats.tick() => beat(link, run, false).await?,
            _ = look.tick() => {}
            changed = received.changed() => {
                changed.map_err(|_| NatsError::Lost)?;
                teller.seen = None;
            }
            changed = own_entry.changed() => {
                changed.map_err(|_| NatsError::Lost)?;
                // Another hub of this name told of its own before it made room.
                if *own_entry.borrow_and_update() > teller.told.revision {
                    (teller.seen, teller.told.roster) = (None, Vec::new());
                }
            }
            changed = signs.changed() => {
                changed.map_err(|_| NatsError::Lost)?;
                tokio::time::sleep(DEBOUNCE).await;
                signs.borrow_and_update();
            }
        }
        let directory = link.hub.directory().await?;
        teller.tell_roster(&directory).await?;
        teller.tell_signs(&directory).await?;
    }
}

struct Teller<'l> {
    link: &'l Link,
    told: Told,
    /// The directory that the roster was made of.
    seen: Option<Arc<Directory>>,
    /// Not before that is it told that an agent is not heard any more: after a start they are heard one by one.
    forgets_at: Instant,
}

impl Teller<'_> {
    async fn tell_roster(&mut self, directory: &Arc<Directory>) -> Result<(), NatsError> {
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, directory)) {
            return Ok(());
        }
        let link = self.link;
        let max_payload = link.client.server_info().max_payload;
        let received = link.received.borrow().clone();
        let bytes = to_bytes(&roster(&link.me, directory, &received, max_payload));
        if bytes != self.told.roster {
            let key = token(&link.me);
            self.told.revision = put(&link.agents, &key, bytes.clone(), "keep who lives here").await?;
            self.told.roster = bytes;
        }
        self.seen = Some(directory.clone());
        Ok(())
    }

    /// Tells what agents do other than was told.
    async fn tell_signs(&mut self, directory: &Directory) -> Result<(), NatsError> {
        let link = self.link;
        let own = directory.agents().filter(|agent| agent.id.realm.is_none()).take(MOST_AGENTS);
        let signs: HashMap<String, AwakeAgent> =
            own.filter_map(|agent| Some((token(&agent.id.name), sign(link, &agent.id)?))).collect();
        let is_told =
            |key: &String, sign: &AwakeAgent| self.told.signs.get(key).is_some_and(|told| told.is_like(sign));
        let changed: Vec<(String, AwakeAgent)> = signs
            .iter()
            .filter(|(key, sign)| !is_told(key, sign))
            .map(|(key, sign)| (key.clone(), sign.clone()))
            .collect();
        let forgets = self.forgets_at <= Instant::now();
        let gone: Vec<String> =
            self.told.signs.keys().filter(|key| forgets && !signs.contains_key(*key)).cloned().collect();
        let key_of = |agent: &str| format!("{}.{agent}", token(&link.me));
        let action = "keep who is awake";
        let mut puts = Vec::with_capacity(changed.len());
        for (agent, sign) in &changed {
            let sign = Sign { v: VERSION, hub: link.me.clone(), agent: sign.clone() };
            let (store, key, bytes) = (link.agents.clone(), key_of(agent), to_bytes(&sign));
            puts.push(async move { put(&store, &key, bytes, action).await });
        }
        let mut puts = stream::iter(puts).buffer_unordered(AT_ONCE);
        while let Some(written) = puts.next().await {
            written?;
        }
        for agent in &gone {
            link.agents.delete(key_of(agent)).await.map_err(NatsError::server(action))?;
            self.told.signs.remove(agent);
        }
        self.told.signs.extend(changed);
        Ok(())
    }
}

async fn put(store: &Store, key: &str, bytes: Vec<u8>, action: &'static str) -> Result<u64, NatsError> {
    store.put(key, bytes.into()).await.map_err(NatsError::server(action))
}

/// What an agent of this hub does, if it ever gave a sign of life.
fn sign(link: &Link, id: &AgentId) -> Option<AwakeAgent> {
    let presence = link.hub.presence(id);
    let silent = link.hub.now().duration_since(presence.since?).as_millis();
    Some(AwakeAgent {
        name: id.name.clone(),
        status: shortened(&presence.status?),
        message: presence.message.as_deref().map(shortened),
        silent_ms: u64::try_from(silent).unwrap_or(0),
        is_awake: presence.awareness == switchboard_core::Awareness::Awake,
    })
}

/// Refuses to go by a name under which another hub is awake. To be asked before anything is read or told under it: who
/// reads in another's name takes its messages away.
///
/// What an earlier run of this hub left is none of another's; what another one left that was killed runs out.
pub(crate) async fn check_name(link: &Link, run: &Run) -> Result<(), NatsError> {
    match own_beat(link).await?.and_then(|beat| beat.home) {
        Some(home) if home != run.home => Err(NatsError::NameTaken { hub: link.me.clone() }),
        _ => Ok(()),
    }
}

/// The heartbeat under the name of this hub, of this run or another.
async fn own_beat(link: &Link) -> Result<Option<Beat>, NatsError> {
    let entry =
        link.presence.entry(token(&link.me)).await.map_err(NatsError::server("tell of other hubs"))?;
    let entry = entry.filter(|entry| entry.operation == Operation::Put);
    Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
}

/// Gives a heartbeat. Fails where another hub of this name gives them as well.
async fn beat(link: &Link, run: &Run, is_first: bool) -> Result<(), NatsError> {
    // An earlier run of this hub may have left its last heartbeat.
    let is_left = |known: &Beat| is_first && known.home.as_ref() == Some(&run.home);
    // Runs are numbered by when they began: of two that go by one name, the later one makes room.
    if own_beat(link).await?.is_some_and(|known| known.run < run.id && !is_left(&known)) {
        return Err(NatsError::NameTaken { hub: link.me.clone() });
    }
    let beat = Beat { v: VERSION, hub: link.me.clone(), run: run.id.clone(), home: Some(run.home.clone()) };
    put(&link.presence, &token(&link.me), to_bytes(&beat), "keep who is awake").await?;
    Ok(())
}

/// Tells all hubs that this one starts or stops. One that misses it finds out from the heartbeats.
async fn announce(link: &Link, is_there: bool) -> Result<(), NatsError> {
    let subject = link.subjects.live_hub(&link.me);
    let payload = if is_there { "up" } else { "down" };
    link.client.publish(subject, payload.into()).await.map_err(NatsError::server("tell other hubs"))
}

/// Tells the others that this hub is going.
pub(crate) async fn say_goodbye(link: &Link) {
    let goodbye = async {
        let subject = format!("$KV.{}.{}", link.subjects.presence(), token(&link.me));
        // An entry that is merely deleted would still be listed.
        let _ = link.presence.stream.purge().filter(subject).await;
        let _ = announce(link, false).await;
        let _ = link.client.flush().await;
    };
    let _ = tokio::time::timeout(LOOK, goodbye).await;
}

/// True if an entry is of the hub that its key names. The key is what a server checks.
pub(crate) fn is_of(hub: &Name, key: &str) -> bool {
    token(hub) == key
}
