//! Who lives where and who is awake: what this hub tells the others, and what it hears of them.
//!
//! Each hub has one entry in each of two buckets. Who lives on it stays there while it is away, so that mail can be
//! written to its agents; who is awake is forgotten by the server when the hub falls silent. A server tells nobody
//! that an entry has run out, so every hub keeps the time of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Operation, Store};
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use switchboard_core::{AgentId, Directory, Name, OFFLINE};
use tokio::time::{Instant, MissedTickBehavior};

use crate::error::NatsError;
use crate::link::Link;
use crate::roster::{residents, roster};
use crate::status::{AgentStatus, HubStatus, beat};
use crate::subject::token;
use crate::wire::{
    Awake, AwakeAgent, Malformed, Roster, VERSION, fitting, is_known, readable, shortened, to_bytes,
};

/// How often to look whether there is something to tell, and who has fallen silent.
const LOOK: Duration = Duration::from_secs(1);

/// How many times a hub is heard within the time after which it counts as away.
const BEATS: u32 = 4;

/// Tells the others who lives here and who is awake, until something fails.
pub(crate) async fn tell(link: &Link, run: &Run) -> Result<Infallible, NatsError> {
    let key = token(&link.me);
    let max_payload = link.client.server_info().max_payload;
    let mut revision = 0;
    let mut seen: Option<Arc<Directory>> = None;
    let (mut told_roster, mut told_awake): (Vec<u8>, Vec<AwakeAgent>) = (Vec::new(), Vec::new());
    let mut beat_due = Instant::now();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let directory = link.hub.directory().await?;
        if !seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &directory)) {
            let bytes = to_bytes(&roster(&link.me, &directory, max_payload));
            if bytes != told_roster {
                revision = put(&link.roster, &key, bytes.clone(), "keep who lives here").await?;
                told_roster = bytes;
            }
            seen = Some(directory.clone());
        }
        let awake = awake(link, &directory);
        if beat_due <= Instant::now() || is_other(&awake, &told_awake) {
            beat_due = Instant::now() + link.config.presence_ttl / BEATS;
            let agents = fitting(&awake, max_payload);
            let (hub, home) = (link.me.clone(), Some(run.home.clone()));
            let entry = Awake { v: VERSION, hub, run: run.id.clone(), home, agents };
            put(&link.presence, &key, to_bytes(&entry), "keep who is awake").await?;
            told_awake = awake;
            // Another hub of this name may have told of its own before it made room.
            let entry =
                link.roster.entry(key.as_str()).await.map_err(NatsError::server("tell who lives here"))?;
            if entry.is_none_or(|entry| entry.revision != revision) {
                revision = put(&link.roster, &key, told_roster.clone(), "keep who lives here").await?;
            }
        }
    }
}

async fn put(store: &Store, key: &str, bytes: Vec<u8>, action: &'static str) -> Result<u64, NatsError> {
    store.put(key, bytes.into()).await.map_err(NatsError::server(action))
}

/// Refuses to go by a name under which another hub is awake. To be asked before anything is read or told under it: who
/// reads in another's name takes its messages away.
///
/// What an earlier run of this hub left is none of another's; what another one left that was killed runs out.
pub(crate) async fn check_name(link: &Link, run: &Run) -> Result<(), NatsError> {
    let entry =
        link.presence.entry(token(&link.me)).await.map_err(NatsError::server("tell of other hubs"))?;
    let entry = entry.filter(|entry| entry.operation == Operation::Put);
    let awake = entry.and_then(|entry| serde_json::from_slice::<Awake>(&entry.value).ok());
    match awake.and_then(|awake| awake.home) {
        Some(home) if home != run.home => Err(NatsError::NameTaken { hub: link.me.clone() }),
        _ => Ok(()),
    }
}

/// Tells the others that this hub is going.
pub(crate) async fn say_goodbye(link: &Link) {
    // Without it they find out by its silence.
    let _ = tokio::time::timeout(LOOK, link.presence.delete(token(&link.me))).await;
}

/// The agents of this hub that gave a sign of life.
fn awake(link: &Link, directory: &Directory) -> Vec<AwakeAgent> {
    let now = link.hub.now();
    let own = directory.agents().filter(|agent| agent.id.realm.is_none());
    let sign = |id: &AgentId| {
        let presence = link.hub.presence(id);
        let silent = now.duration_since(presence.since?).as_millis();
        Some(AwakeAgent {
            name: id.name.clone(),
            status: shortened(&presence.status?),
            message: presence.message.as_deref().map(shortened),
            silent_ms: u64::try_from(silent).unwrap_or(0),
        })
    };
    own.filter_map(|agent| sign(&agent.id)).collect()
}

/// Whether somebody does something else than was told. That they still do is told with the next beat.
fn is_other(one: &[AwakeAgent], other: &[AwakeAgent]) -> bool {
    let what = |agent: &AwakeAgent| (agent.name.clone(), agent.status.clone(), agent.message.clone());
    !one.iter().map(what).eq(other.iter().map(what))
}

/// What tells this run of this hub from all others.
pub(crate) struct Run {
    /// Names this run, in the order of their beginnings.
    pub(crate) id: String,
    /// Names this hub, whatever it is called.
    pub(crate) home: String,
}

/// What was heard of another hub.
struct Heard {
    at: Instant,
    is_away: bool,
    agents: Vec<AgentStatus>,
}

/// Hears of the other hubs, until something fails.
pub(crate) async fn hear(link: &Link, run: &Run) -> Result<Infallible, NatsError> {
    let action = "tell of other hubs";
    let mut rosters = link.roster.watch_with_history(">").await.map_err(NatsError::server(action))?;
    let mut presences = link.presence.watch_with_history(">").await.map_err(NatsError::server(action))?;
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard: HashMap<Name, Heard> = HashMap::new();
    loop {
        tokio::select! {
            entry = rosters.next() => {
                let entry = entry.ok_or(NatsError::Lost)?.map_err(NatsError::server(action))?;
                if let Err(error) = hear_roster(link, &entry).await? {
                    tracing::warn!(key = entry.key, reason = %error, "what a hub tells of its agents was skipped");
                }
            }
            entry = presences.next() => {
                let entry = entry.ok_or(NatsError::Lost)?.map_err(NatsError::server(action))?;
                if let Err(error) = hear_presence(link, &run.id, &entry, &mut heard)? {
                    tracing::warn!(key = entry.key, reason = %error, "what a hub tells of who is awake was skipped");
                }
            }
            _ = look.tick() => {
                for (hub, known) in &mut heard {
                    if !known.is_away && known.at.elapsed() > link.config.presence_ttl {
                        fall_silent(link, hub, known);
                    }
                }
            }
        }
    }
}

async fn hear_roster(link: &Link, entry: &Entry) -> Result<Result<(), Malformed>, NatsError> {
    if entry.operation != Operation::Put || entry.key == token(&link.me) {
        return Ok(Ok(()));
    }
    let read = serde_json::from_slice::<Roster>(&entry.value).map_err(Malformed::from);
    let read =
        read.and_then(|roster| is_known(roster.v).and(is_of(&roster.hub, &entry.key)).map(|()| roster));
    match read {
        Ok(roster) => {
            link.hub.put_residents(roster.hub.clone(), residents(roster)).await?;
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(error)),
    }
}

/// Nobody tells in another's name: the key is what a server checks.
fn is_of(hub: &Name, key: &str) -> Result<(), Malformed> {
    if token(hub) == key {
        return Ok(());
    }
    Err(Malformed::Field { field: "hub", problem: "is another than its key".to_owned() })
}

fn hear_presence(
    link: &Link,
    run: &str,
    entry: &Entry,
    heard: &mut HashMap<Name, Heard>,
) -> Result<Result<(), Malformed>, NatsError> {
    if entry.operation != Operation::Put {
        for (hub, known) in heard.iter_mut().filter(|(hub, _)| token(hub) == entry.key) {
            fall_silent(link, hub, known);
        }
        return Ok(Ok(()));
    }
    let read = serde_json::from_slice::<Awake>(&entry.value).map_err(Malformed::from);
    let awake =
        match read.and_then(|awake| is_known(awake.v).and(is_of(&awake.hub, &entry.key)).map(|()| awake)) {
            Ok(awake) => awake,
            Err(error) => return Ok(Err(error)),
        };
    if awake.hub == link.me {
        // Runs are numbered by when they began: of two that go by one name, the later one makes room. What was
        // there before this session may be its own from before it was restarted.
        if entry.seen_current && awake.run.as_str() < run {
            return Err(NatsError::NameTaken { hub: awake.hub });
        }
        return Ok(Ok(()));
    }
    let now = link.hub.now();
    let before = heard.get(&awake.hub).map_or(&[][..], |known| &known.agents);
    let agents: Vec<AgentStatus> =
        readable(awake.agents).into_iter().map(|agent| status(agent, before, now)).collect();
    for agent in &agents {
        link.hub.hear(beat(&awake.hub, agent.clone()));
    }
    link.board.heard(&awake.hub, HubStatus { heard_at: now, agents: agents.clone() });
    heard.insert(awake.hub, Heard { at: Instant::now(), is_away: false, agents });
    Ok(Ok(()))
}

/// A sign of life by the clock of this hub. The time of one agent never goes back, however long its message took.
fn status(agent: AwakeAgent, before: &[AgentStatus], now: Timestamp) -> AgentStatus {
    let silent = SignedDuration::from_millis(i64::try_from(agent.silent_ms).unwrap_or(i64::MAX));
    let at = now.saturating_sub(silent).unwrap_or(Timestamp::UNIX_EPOCH);
    let known = before.iter().find(|known| known.name == agent.name).map_or(at, |known| known.at);
    AgentStatus { name: agent.name, status: agent.status, message: agent.message, at: at.max(known) }
}

/// A hub that is not heard cannot vouch for its agents.
fn fall_silent(link: &Link, hub: &Name, known: &mut Heard) {
    known.is_away = true;
    for agent in &mut known.agents {
        OFFLINE.clone_into(&mut agent.status);
        link.hub.hear(beat(hub, agent.clone()));
    }
    link.board.heard(hub, HubStatus { heard_at: link.hub.now(), agents: known.agents.clone() });
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
