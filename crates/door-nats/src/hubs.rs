//! Tracks the agents and the presence of other hubs.
//!
//! A plain subscription receives the changes of the agents bucket, which the server republishes with their sequences.
//! If there is a gap in the sequences, or if the bucket continues after the last received change, this hub reads the
//! missing entries from the bucket. The link polls for the hubs that are online several times per presence TTL.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::{HeaderMap, Message, Subscriber};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Name, OFFLINE};
use switchboard_hub::RemoteAgent;
use tokio::time::MissedTickBehavior;

use crate::error::NatsError;
use crate::presence::{HEARTBEATS_PER_TTL, Published, is_key_of};
use crate::replay;
use crate::roster::parse_roster;
use crate::session::Session;
use crate::status::{AgentStatus, HubStatus, beat};
use crate::subject::token;
use crate::wire::{AgentActivity, AgentPresence, MAX_AGENTS, Malformed, Roster, check_version};

const ACTION: &str = "read the presence of hubs";

/// Maximum number of changes that are applied in one batch.
const BATCH: usize = 1024;

/// Header that carries the bucket sequence of a republished entry.
const SEQUENCE: &str = "Nats-Sequence";

/// A change of the agents bucket.
struct Change {
    sequence: u64,
    key: String,
    /// New value of the entry; `None` if the entry was removed.
    value: Option<Vec<u8>>,
}

/// State of another hub.
#[derive(Default)]
struct RemoteHub {
    /// Name of the hub as that hub spells it; `None` before its first entry.
    name: Option<Name>,
    is_away: bool,
    /// Agents of the hub, by agent token.
    agents: HashMap<String, TrackedAgent>,
}

/// Presence of an agent of another hub.
struct TrackedAgent {
    status: AgentStatus,
    is_awake: bool,
}

/// The other hubs, as far as this hub knows them.
pub(crate) struct RemoteHubs {
    session: Session,
    live: Subscriber,
    /// Bucket sequence up to which all entries are known.
    known: u64,
    /// Last sequence of the bucket at the previous poll.
    end: u64,
    others: BTreeMap<String, RemoteHub>,
}

impl RemoteHubs {
    /// Subscribes to the agents bucket and reads it; also returns the bucket's entries of this hub.
    pub(crate) async fn open(session: &Session) -> Result<(Self, Published), NatsError> {
        let live =
            session.client.subscribe(session.subjects.live()).await.map_err(NatsError::server(ACTION))?;
        let others = BTreeMap::new();
        let mut hubs = Self { session: session.clone(), live, known: 0, end: 0, others };
        let changes = hubs.replay(DeliverPolicy::LastPerSubject).await?;
        let own = token(&session.me);
        let mut published = Published::default();
        for Change { sequence, key, value } in &changes {
            let Some(value) = value else { continue };
            match key.split_once('.') {
                None if *key == own => (published.roster, published.revision) = (value.clone(), *sequence),
                Some((hub, agent)) if hub == own => {
                    let sign = serde_json::from_slice::<AgentPresence>(value).ok();
                    published.signs.extend(sign.map(|sign| (agent.to_owned(), sign.agent)));
                }
                _ => {}
            }
        }
        hubs.apply(changes).await?;
        hubs.poll().await?;
        Ok((hubs, published))
    }

    /// Follows the changes of other hubs until an error occurs.
    pub(crate) async fn follow(mut self) -> Result<Infallible, NatsError> {
        let mut poll = tokio::time::interval(self.session.presence_ttl / HEARTBEATS_PER_TTL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.reset();
        loop {
            tokio::select! {
                message = self.live.next() => {
                    let message = message.ok_or(NatsError::Lost)?;
                    self.apply_live(message).await?;
                }
                _ = poll.tick() => self.poll().await?,
            }
        }
    }

    /// Applies a change as one batch with the changes that are already queued.
    async fn apply_live(&mut self, first: Message) -> Result<(), NatsError> {
        let mut next = Some(first);
        let (mut changes, mut is_incomplete) = (Vec::new(), false);
        while let Some(message) = next {
            if let Some(hub) = self.session.subjects.announced_hub(&message.subject) {
                self.apply_announcement(hub, &message.payload);
            } else if let Some(change) = parse_change(&message, None) {
                match change.sequence.checked_sub(self.known) {
                    Some(1) => {
                        self.known = change.sequence;
                        changes.push(change);
                    }
                    None | Some(0) => {}
                    Some(_) => is_incomplete = true,
                }
            }
            next = if changes.len() < BATCH { self.live.next().now_or_never().flatten() } else { None };
        }
        for change in &changes {
            self.mark_alive(change.key.split('.').next().unwrap_or_default());
        }
        self.apply(changes).await?;
        if is_incomplete { self.read_rest().await } else { Ok(()) }
    }

    /// Reads the bucket entries after the last known one.
    async fn read_rest(&mut self) -> Result<(), NatsError> {
        let policy = DeliverPolicy::ByStartSequence { start_sequence: self.known + 1 };
        let changes = self.replay(policy).await?;
        self.apply(changes).await
    }

    async fn replay(&mut self, deliver_policy: DeliverPolicy) -> Result<Vec<Change>, NatsError> {
        let filter_subject = format!("$KV.{}.>", self.session.subjects.agents());
        let part = replay::StreamRange { filter_subject, deliver_policy, headers_only: false };
        let stream = &self.session.agents.stream;
        let end = stream.get_info().await.map_err(NatsError::server(ACTION))?.state.last_sequence;
        let found = replay::read_range(stream, part, self.session.config.timeout).await?;
        let changes: Vec<Change> =
            found.iter().filter_map(|(sequence, message)| parse_change(message, Some(*sequence))).collect();
        let last = changes.iter().map(|change| change.sequence).max().unwrap_or_default();
        self.known = self.known.max(end).max(last);
        Ok(changes)
    }

    /// Polls which hubs are online, and detects missed changes.
    async fn poll(&mut self) -> Result<(), NatsError> {
        let agents = &self.session.agents.stream;
        let end = agents.get_info().await.map_err(NatsError::server(ACTION))?.state.last_sequence;
        // By now, all changes up to the end of the previous poll should have been republished.
        let is_behind = self.known < self.end;
        self.end = end;
        if is_behind {
            self.read_rest().await?;
        }
        let filter = format!("$KV.{}.", self.session.subjects.presence());
        let listing = self.session.presence.stream.info_with_subjects(format!("{filter}>")).await;
        let keys: Vec<(String, usize)> = listing
            .map_err(NatsError::server(ACTION))?
            .try_collect()
            .await
            .map_err(NatsError::server(ACTION))?;
        let keys: HashSet<&str> =
            keys.iter().filter_map(|(subject, _)| subject.strip_prefix(filter.as_str())).collect();
        for key in self.others.keys().cloned().collect::<Vec<_>>() {
            if keys.contains(key.as_str()) { self.mark_alive(&key) } else { self.mark_away(&key) }
        }
        self.refresh();
        Ok(())
    }

    fn apply_announcement(&mut self, key: &str, payload: &[u8]) {
        if payload == b"down" { self.mark_away(key) } else { self.mark_alive(key) }
    }

    async fn apply(&mut self, changes: Vec<Change>) -> Result<(), NatsError> {
        let own = token(&self.session.me);
        let mut rosters: Vec<(Name, Vec<RemoteAgent>)> = Vec::new();
        let mut touched = HashSet::new();
        for Change { sequence, key, value } in changes {
            let (hub, agent) = match key.split_once('.') {
                Some((hub, agent)) => (hub, Some(agent)),
                None => (key.as_str(), None),
            };
            if hub == own {
                if agent.is_none() {
                    self.session.own_entry.send_replace(sequence);
                }
                continue;
            }
            let applied = match (agent, value) {
                (None, Some(value)) => self.apply_roster(hub, &value).map(|roster| rosters.push(roster)),
                (Some(agent), Some(value)) => self.apply_activity(hub, agent, &value),
                (Some(agent), None) => {
                    self.remove_agent(hub, agent);
                    Ok(())
                }
                (None, None) => Ok(()),
            };
            match applied {
                Ok(()) => drop(touched.insert(hub.to_owned())),
                Err(error) => {
                    tracing::warn!(key, reason = %error, "skipped invalid presence of another hub");
                }
            }
        }
        // If a hub has several rosters in the batch, the last one wins.
        let rosters: BTreeMap<Name, Vec<RemoteAgent>> = rosters.into_iter().collect();
        if !rosters.is_empty() {
            self.session.hub.relay().put_remote_agents_of(rosters.into_iter().collect()).await?;
        }
        for hub in touched {
            self.show(&hub);
        }
        Ok(())
    }

    fn apply_roster(&mut self, key: &str, value: &[u8]) -> Result<(Name, Vec<RemoteAgent>), Malformed> {
        let roster: Roster = serde_json::from_slice(value)?;
        check_version(roster.v)?;
        check_key(&roster.hub, key)?;
        self.others.entry(key.to_owned()).or_default().name = Some(roster.hub.clone());
        Ok((roster.hub.clone(), parse_roster(roster)))
    }

    fn apply_activity(&mut self, key: &str, agent: &str, value: &[u8]) -> Result<(), Malformed> {
        let AgentPresence { v, hub, agent: sign } = serde_json::from_slice(value)?;
        check_version(v)?;
        check_key(&hub, key)?;
        if token(&sign.name) != agent {
            return Err(Malformed::Field { field: "name", problem: "does not match its key".to_owned() });
        }
        let now = self.session.hub.now();
        let other = self.others.entry(key.to_owned()).or_default();
        other.name = Some(hub.clone());
        if other.agents.len() >= MAX_AGENTS && !other.agents.contains_key(agent) {
            return Ok(());
        }
        let known = other.agents.get(agent).map(|agent| agent.status.at);
        let agent_is = TrackedAgent { is_awake: sign.is_awake, status: status(sign, known, now) };
        if !other.is_away {
            self.session.hub.agents().record_heartbeat(beat(&hub, agent_is.status.clone()));
        }
        other.agents.insert(agent.to_owned(), agent_is);
        Ok(())
    }

    /// Marks an agent offline after its hub has stopped receiving its heartbeats.
    fn remove_agent(&mut self, key: &str, agent: &str) {
        let Some(other) = self.others.get_mut(key) else { return };
        if let (Some(hub), Some(mut known)) = (&other.name, other.agents.remove(agent)) {
            OFFLINE.clone_into(&mut known.status.status);
            self.session.hub.agents().record_heartbeat(beat(hub, known.status));
        }
    }

    /// Marks a hub online; its agents then have their individual presence again.
    fn mark_alive(&mut self, key: &str) {
        let Some(other) = self.others.get_mut(key).filter(|other| other.is_away) else { return };
        other.is_away = false;
        self.show(key);
    }

    /// Marks a hub and all its agents offline.
    fn mark_away(&mut self, key: &str) {
        let Some(other) = self.others.get_mut(key).filter(|other| !other.is_away) else { return };
        other.is_away = true;
        self.show(key);
    }

    /// Extends the presence of agents that are awake according to their hubs.
    ///
    /// The time of their last heartbeat is unknown, so it is set to the oldest value that an awake agent may have.
    fn refresh(&mut self) {
        let now = self.session.hub.now();
        let oldest = max_silence(
            self.session.hub.config().presence.stale,
            self.session.presence_ttl / HEARTBEATS_PER_TTL,
        );
        let since = now.saturating_sub(oldest).unwrap_or(now);
        let mut touched = Vec::new();
        for (key, other) in self.others.iter_mut().filter(|(_, other)| !other.is_away) {
            for agent in other.agents.values_mut().filter(|agent| agent.is_awake && agent.status.at < since) {
                agent.status.at = since;
                if touched.last() != Some(key) {
                    touched.push(key.clone());
                }
            }
        }
        for key in touched {
            self.show(&key);
        }
    }

    /// Publishes the status of a hub's agents to this process and to the status file.
    fn show(&self, key: &str) {
        let Some((hub, other)) = self.others.get(key).and_then(|other| Some((other.name.as_ref()?, other)))
        else {
            return;
        };
        let mut agents: Vec<AgentStatus> = other.agents.values().map(|agent| agent.status.clone()).collect();
        agents.sort_by(|one, other| one.name.cmp(&other.name));
        for agent in &mut agents {
            if other.is_away {
                OFFLINE.clone_into(&mut agent.status);
            }
            self.session.hub.agents().record_heartbeat(beat(hub, agent.clone()));
        }
        self.session.status_writer.record_hub(hub, HubStatus { heard_at: self.session.hub.now(), agents });
    }
}

/// Returns the maximum silence to report for a remote agent that its hub counts as awake.
///
/// Such an agent must not become stale before the next poll.
fn max_silence(stale: SignedDuration, poll: Duration) -> SignedDuration {
    let looks = SignedDuration::try_from(poll * 2).unwrap_or(SignedDuration::MAX);
    stale.saturating_sub(looks).max(stale / 2)
}

/// Parses a bucket entry, stored or republished.
fn parse_change(message: &Message, sequence: Option<u64>) -> Option<Change> {
    let header = |headers: &HeaderMap, name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let headers = message.headers.as_ref();
    let sequence = sequence.or_else(|| header(headers?, SEQUENCE)?.parse().ok())?;
    // The subject is `$KV.<bucket>.<key>` or `<prefix>_live.agents.<key>`.
    let key = message.subject.splitn(3, '.').nth(2)?.to_owned();
    let is_removed = headers.is_some_and(|headers| headers.get("KV-Operation").is_some());
    Some(Change { sequence, key, value: (!is_removed).then(|| message.payload.to_vec()) })
}

fn check_key(hub: &Name, key: &str) -> Result<(), Malformed> {
    if is_key_of(hub, key) {
        return Ok(());
    }
    Err(Malformed::Field { field: "hub", problem: "does not match its key".to_owned() })
}

/// Converts activity to a status by the clock of this hub.
///
/// The heartbeat time of an agent never goes backwards, even if a message arrives late.
fn status(agent: AgentActivity, known: Option<Timestamp>, now: Timestamp) -> AgentStatus {
    let silent = SignedDuration::from_millis(i64::try_from(agent.silent_ms).unwrap_or(i64::MAX));
    let at = now.saturating_sub(silent).unwrap_or(Timestamp::UNIX_EPOCH);
    let at = known.map_or(at, |known| at.max(known));
    AgentStatus { name: agent.name, status: agent.status, message: agent.message, at }
}

#[cfg(test)]
#[path = "hubs_tests.rs"]
mod tests;
