//! Refresh of keys and rosters.
//!
//! `/info` only confirms keys and has no authority to change them (§9.4).

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{AgentId, describe_json_error};
use switchboard_https::{Limits, Url};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::join_client::{headers, protocol_error};
use crate::keys::PublicKey;
use crate::members::RosterEntry;
use crate::model::{KeylessMember, Swarm};
use crate::server::Task;
use crate::swarms::Swarms;
use crate::wire::Info;

/// Minimum time between key checks after failed signatures, so that bad signatures cannot make this hub send many
/// requests.
const KEY_CHECK_INTERVAL: SignedDuration = SignedDuration::from_mins(10);

/// Minimum time between roster requests to one master.
const ROSTER_REQUEST_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// Minimum time between full rosters to one member: shorter than a member's own request interval, and long enough that
/// rosters do not fill the journal.
const ROSTER_SEND_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Minimum time between retries to an unreachable peer that sends messages itself.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Initial backoff before a new member's endpoint is asked for its key again. The backoff doubles up to about an hour.
const KEY_REQUEST_BACKOFF: SignedDuration = SignedDuration::from_mins(1);

/// Maximum number of key requests to the endpoint of a new member. With the backoff, they last about a week.
const MAX_KEY_REQUESTS: u32 = 160;

/// Maximum number of throttle entries per kind.
const MAX_TRACKED: usize = 10_000;

/// Throttle of requests to peers: the time of the last request per target.
#[derive(Debug, Default)]
pub(crate) struct RequestThrottle {
    key_checks: HashMap<(PeerId, Uuid, PeerId), Timestamp>,
    roster_requests: HashMap<(PeerId, Uuid), Timestamp>,
    rosters_sent: HashMap<(PeerId, Uuid, PeerId), Timestamp>,
    /// Times of the last retries. There is at most one entry for each member of our swarms.
    retries: HashMap<AgentId, Timestamp>,
}

impl RequestThrottle {
    fn allow_key_check(&mut self, key: (PeerId, Uuid, PeerId), now: Timestamp) -> bool {
        if self.key_checks.len() >= MAX_TRACKED {
            self.key_checks.retain(|_, at| now.duration_since(*at) < KEY_CHECK_INTERVAL);
        }
        let may = self.key_checks.get(&key).is_none_or(|at| now.duration_since(*at) >= KEY_CHECK_INTERVAL);
        if may && self.key_checks.len() < MAX_TRACKED {
            self.key_checks.insert(key, now);
        }
        may
    }

    fn allow_roster_send(&mut self, key: (PeerId, Uuid, PeerId), now: Timestamp) -> bool {
        if self.rosters_sent.len() >= MAX_TRACKED {
            self.rosters_sent.retain(|_, at| now.duration_since(*at) < ROSTER_SEND_INTERVAL);
        }
        let may =
            self.rosters_sent.get(&key).is_none_or(|at| now.duration_since(*at) >= ROSTER_SEND_INTERVAL);
        if may && self.rosters_sent.len() < MAX_TRACKED {
            self.rosters_sent.insert(key, now);
        }
        may
    }

    fn allow_retry(&mut self, peer: &AgentId, now: Timestamp) -> bool {
        let may = self.retries.get(peer).is_none_or(|at| now.duration_since(*at) >= RETRY_INTERVAL);
        if may {
            self.retries.insert(peer.clone(), now);
        }
        may
    }

    fn allow_roster_request(&mut self, key: (PeerId, Uuid), now: Timestamp) -> bool {
        let may = self
            .roster_requests
            .get(&key)
            .is_none_or(|at| now.duration_since(*at) >= ROSTER_REQUEST_INTERVAL);
        if may {
            self.roster_requests.insert(key, now);
        }
        may
    }
}

impl Swarm {
    /// Adds a member that was announced without a key, or schedules the next key request with backoff.
    fn learn_key(&mut self, id: &PeerId, key: Option<PublicKey>, now: Timestamp) {
        let Some(announced) = self.announced.get_mut(id) else { return };
        let pause = KEY_REQUEST_BACKOFF.saturating_mul(1 << announced.asked.min(6));
        announced.asked = announced.asked.saturating_add(1);
        announced.ask_at = now.saturating_add(pause).unwrap_or(now);
        let (announced, attempts) = (announced.clone(), announced.asked);
        if let Some(key) = key {
            let KeylessMember { endpoint, joined_at, .. } = announced;
            // An endpoint does not prove the key that it returns, so the member is provisional. The entry is refused if
            // the key or the id belongs to another member.
            self.insert_entry(RosterEntry {
                id: id.clone(),
                endpoint,
                public_key: key,
                joined_at,
                provisional: true,
            });
        }
        if attempts >= MAX_KEY_REQUESTS {
            self.announced.remove(id);
        }
    }
}

impl Swarms {
    /// Fetches `/info` of an endpoint and returns the agent's id and key.
    pub(crate) async fn fetch_info(
        &self,
        agent: &PeerId,
        endpoint: &Endpoint,
    ) -> Result<(PeerId, PublicKey), SwarmError> {
        let client = self.client()?;
        let bad = |problem: String| SwarmError::BadAnswer { endpoint: endpoint.to_string(), problem };
        let mut urls = vec![endpoint.resource("info")];
        urls.extend(endpoint.resource_below_swarm("info"));
        let mut last = None;
        for url in urls {
            let url = Url::parse(url.as_str()).map_err(|error| bad(error.to_string()))?;
            let answer = client.get(&url, headers(agent), Limits::default()).await?;
            if answer.status.is_success() {
                let info: Info =
                    serde_json::from_slice(&answer.body).map_err(|error| bad(describe_json_error(&error)))?;
                return Ok((PeerId::parse(&info.agent_id)?, PublicKey::parse(&info.public_key)?));
            }
            let (code, message) = protocol_error(&answer).unwrap_or_default();
            last = Some(SwarmError::Refused {
                endpoint: endpoint.to_string(),
                status: answer.status.as_u16(),
                code,
                message,
            });
        }
        Err(last.unwrap_or_else(|| bad("it has no /info".to_owned())))
    }

    /// Compares a member's key with the key at its endpoint. A different key is recorded and reported, but does not
    /// replace the pinned key.
    async fn confirm_key(&self, agent: &PeerId, swarm: Uuid, member: &PeerId) -> Result<(), SwarmError> {
        let snapshot = self.snapshot();
        let known = snapshot.swarms.get(&(agent.clone(), swarm)).and_then(|swarm| swarm.members.get(member));
        let Some(known) = known else { return Ok(()) };
        let (id, key) = self.fetch_info(agent, &known.endpoint).await?;
        let (now, member, pinned) = (self.hub().now(), member.clone(), known.public_key.clone());
        if id != member {
            tracing::warn!(%member, endpoint = %known.endpoint, "the endpoint of a member says that it is '{id}'");
            return Ok(());
        }
        if key != pinned {
            tracing::error!(
                %member, pinned = %pinned.fingerprint(), offered = %key.fingerprint(),
                "THE KEY OF A MEMBER HAS CHANGED and nobody with authority has said so; its messages are refused. \
                 Compare it with its owner, then `switchboard swarm key accept`"
            );
        }
        self.edit_swarm(agent, swarm, move |swarm| {
            if let Some(known) = swarm.members.get_mut(&member) {
                known.offered_key = (key != known.public_key).then_some(key);
                known.confirmed_at = known.offered_key.is_none().then_some(now).or(known.confirmed_at);
            }
            Ok(())
        })
        .await
    }

    /// Fetches the key of a member that the master announced without one.
    ///
    /// A failed request is retried later, because the member may be about to start.
    async fn fetch_member_key(&self, agent: &PeerId, swarm: Uuid, member: &PeerId) -> Result<(), SwarmError> {
        let snapshot = self.snapshot();
        let known = snapshot.swarms.get(&(agent.clone(), swarm)).filter(|swarm| swarm.is_active());
        let announced = known.and_then(|swarm| swarm.announced.get(member));
        let Some(announced) = announced.cloned() else { return Ok(()) };
        let fetched = match self.fetch_info(agent, &announced.endpoint).await {
            Ok((id, _)) if id != *member => Err(SwarmError::BadAnswer {
                endpoint: announced.endpoint.to_string(),
                problem: format!("it says that it is '{id}' and not '{member}'"),
            }),
            fetched => fetched,
        };
        let (now, id) = (self.hub().now(), member.clone());
        let (key, failed) = match fetched {
            Ok((_, key)) => (Some(key), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let change = move |swarm: &mut Swarm| {
            swarm.learn_key(&id, key, now);
            Ok(())
        };
        self.edit_swarm(agent, swarm, change).await?;
        failed
    }

    /// Fetches missing keys of announced members that are due, at most `most` at a time.
    pub(crate) async fn fetch_missing_keys(&self, most: usize, now: Timestamp) {
        let mut due = Vec::new();
        for ((agent, id), swarm) in self.snapshot().swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            let waiting = swarm.announced.iter().filter(|(_, announced)| announced.ask_at <= now);
            due.extend(waiting.map(|(member, _)| (agent.clone(), *id, member.clone())));
        }
        for (agent, swarm, member) in due.into_iter().take(most) {
            if let Err(error) = self.fetch_member_key(&agent, swarm, &member).await {
                tracing::debug!(%member, error = %error, "the key of a new member could not be fetched");
            }
        }
    }

    /// Runs a task that a request has deferred.
    pub(crate) async fn run_task(&self, task: Task, throttle: &mut RequestThrottle) {
        let now = self.hub().now();
        let done = match task {
            Task::PeerReachable { peer } => self.retry_peer(peer, throttle, now).await,
            Task::SignatureFailed { agent, swarm, member } => {
                if throttle.allow_key_check((agent.clone(), swarm, member.clone()), now) {
                    self.confirm_key(&agent, swarm, &member).await
                } else {
                    Ok(())
                }
            }
            Task::KeyMissing { agent, swarm, member } => self.fetch_member_key(&agent, swarm, &member).await,
            Task::Approved { agent, swarm } => {
                if throttle.allow_roster_request((agent.clone(), swarm), now) {
                    self.retry_approved_join(&agent, swarm).await;
                }
                Ok(())
            }
            Task::Behind { agent, swarm } => match self.snapshot().swarms.get(&(agent.clone(), swarm)) {
                Some(known) if throttle.allow_roster_request((agent.clone(), swarm), now) => {
                    self.request_roster(&agent, known).await
                }
                _ => Ok(()),
            },
            Task::RosterRequested { agent, swarm, member } => {
                match self.snapshot().swarms.get(&(agent.clone(), swarm)) {
                    Some(known)
                        if throttle.allow_roster_send((agent.clone(), swarm, member.clone()), now) =>
                    {
                        self.send_roster(&agent, known, &member).await
                    }
                    _ => Ok(()),
                }
            }
        };
        if let Err(error) = done {
            tracing::warn!(error = %switchboard_core::error_chain(&error), "a deferred task failed");
        }
    }

    /// Sends the full roster to a member, in ordered parts.
    ///
    /// If our agent is no longer the master, the member has missed the change of master. The member accepts only the
    /// old master's announcement of this change, so our agent sends the announcement instead of the roster.
    async fn send_roster(&self, agent: &PeerId, swarm: &Swarm, member: &PeerId) -> Result<(), SwarmError> {
        if swarm.master != *agent {
            return self
                .send_system_message(agent, swarm, member, swarm.master_changed_content(agent).to_text())
                .await;
        }
        for part in swarm.roster_parts() {
            let text = serde_json::to_string(&part).unwrap_or_default();
            self.send_system_message(agent, swarm, member, text).await?;
        }
        Ok(())
    }

    /// Makes the deliveries to a peer due immediately if the peer was unreachable before.
    async fn retry_peer(
        &self,
        peer: AgentId,
        throttle: &mut RequestThrottle,
        now: Timestamp,
    ) -> Result<(), SwarmError> {
        if self.last_failure(&peer).is_some() && throttle.allow_retry(&peer, now) {
            self.hub().deliveries().retry_peer_now(peer).await?;
        }
        Ok(())
    }

    /// Confirms keys whose last confirmation is too old, at most `most` at a time.
    pub(crate) async fn confirm_stale_keys(&self, most: usize) {
        let (now, ttl, snapshot) = (self.hub().now(), self.config().key_ttl, self.snapshot());
        let mut stale = Vec::new();
        for ((agent, id), swarm) in snapshot.swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            for (member, known) in swarm.members.iter().filter(|(member, _)| *member != agent) {
                let seen = known.confirmed_at.unwrap_or(known.joined_at);
                if now.duration_since(seen) > ttl {
                    stale.push((seen, agent.clone(), *id, member.clone()));
                }
            }
        }
        stale.sort_unstable();
        for (_, agent, swarm, member) in stale.into_iter().take(most) {
            if let Err(error) = self.confirm_key(&agent, swarm, &member).await {
                tracing::debug!(%member, error = %error, "a key could not be confirmed");
            }
        }
    }
}
