//! Keys and rosters kept current: `/info` confirms, and never decides (§9.4).

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::AgentId;
use switchboard_https::{Limits, Url};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::joining::{error_of, headers};
use crate::keys::PublicKey;
use crate::ledger::Swarm;
use crate::server::Task;
use crate::swarms::Swarms;
use crate::wire::Info;

/// How often at most an endpoint is asked because a signature failed: whoever sends bad ones must not make us ask.
const DOUBT_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// How often at most a master is asked for its roster.
const ROSTER_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// How often at most a peer that writes but cannot be reached is tried for that.
const TRY_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Most that is remembered of when who was asked.
const MOST_ASKED: usize = 10_000;

/// When whom was last asked, so that nobody is asked too often.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    doubted: HashMap<(PeerId, Uuid, PeerId), Timestamp>,
    rosters: HashMap<(PeerId, Uuid), Timestamp>,
    /// At most one entry for each member of our swarms.
    tried: HashMap<AgentId, Timestamp>,
}

impl Asked {
    fn may_doubt(&mut self, key: (PeerId, Uuid, PeerId), now: Timestamp) -> bool {
        if self.doubted.len() >= MOST_ASKED {
            self.doubted.retain(|_, at| now.duration_since(*at) < DOUBT_PAUSE);
        }
        let may = self.doubted.get(&key).is_none_or(|at| now.duration_since(*at) >= DOUBT_PAUSE);
        if may && self.doubted.len() < MOST_ASKED {
            self.doubted.insert(key, now);
        }
        may
    }

    fn may_try(&mut self, peer: &AgentId, now: Timestamp) -> bool {
        let may = self.tried.get(peer).is_none_or(|at| now.duration_since(*at) >= TRY_PAUSE);
        if may {
            self.tried.insert(peer.clone(), now);
        }
        may
    }

    fn may_ask(&mut self, key: (PeerId, Uuid), now: Timestamp) -> bool {
        let may = self.rosters.get(&key).is_none_or(|at| now.duration_since(*at) >= ROSTER_PAUSE);
        if may {
            self.rosters.insert(key, now);
        }
        may
    }
}

impl Swarms {
    /// What an endpoint says of itself: who is there, with which key.
    pub(crate) async fn ask_info(
        &self,
        agent: &PeerId,
        endpoint: &Endpoint,
    ) -> Result<(PeerId, PublicKey), SwarmError> {
        let client = self.client()?;
        let bad = |problem: String| SwarmError::BadAnswer { endpoint: endpoint.to_string(), problem };
        let mut places = vec![endpoint.resource("info")];
        places.extend(endpoint.resource_below_swarm("info"));
        let mut last = None;
        for place in places {
            let url = Url::parse(place.as_str()).map_err(|error| bad(error.to_string()))?;
            let answer = client.get(&url, headers(agent), Limits::default()).await?;
            if answer.status.is_success() {
                let info: Info =
                    serde_json::from_slice(&answer.body).map_err(|error| bad(error.to_string()))?;
                return Ok((PeerId::parse(&info.agent_id)?, PublicKey::parse(&info.public_key)?));
            }
            let (code, message) = error_of(&answer).unwrap_or_default();
            last = Some(SwarmError::Refused {
                endpoint: endpoint.to_string(),
                status: answer.status.as_u16(),
                code,
                message,
            });
        }
        Err(last.unwrap_or_else(|| bad("it has no /info".to_owned())))
    }

    /// Compares a member's key with what its endpoint says. Another key there is noted and shown; it replaces nothing.
    async fn confirm(&self, agent: &PeerId, swarm: Uuid, member: &PeerId) -> Result<(), SwarmError> {
        let book = self.book();
        let known = book.swarms.get(&(agent.clone(), swarm)).and_then(|swarm| swarm.members.get(member));
        let Some(known) = known else { return Ok(()) };
        let (id, key) = self.ask_info(agent, &known.endpoint).await?;
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
        self.edit(agent, swarm, move |swarm| {
            if let Some(known) = swarm.members.get_mut(&member) {
                known.offered_key = (key != known.public_key).then_some(key);
                known.confirmed_at = known.offered_key.is_none().then_some(now).or(known.confirmed_at);
            }
            Ok(())
        })
        .await
    }

    /// Takes in a member that a master announced without its key, once its endpoint has named it.
    async fn complete(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        member: &PeerId,
        endpoint: Endpoint,
    ) -> Result<(), SwarmError> {
        let (id, key) = self.ask_info(agent, &endpoint).await?;
        if id != *member {
            let problem = format!("it says that it is '{id}' and not '{member}'");
            return Err(SwarmError::BadAnswer { endpoint: endpoint.to_string(), problem });
        }
        let now = self.hub().now();
        self.edit(agent, swarm, move |swarm| {
            let is_taken = swarm.members.iter().any(|(other, m)| *other == id || m.public_key == key);
            if !is_taken && swarm.is_active() {
                swarm.put_member(&id, endpoint, key, now);
            }
            Ok(())
        })
        .await
    }

    /// Does what a request has left to be done.
    pub(crate) async fn tend(&self, task: Task, asked: &mut Asked) {
        let now = self.hub().now();
        let done = match task {
            Task::Back { peer } => self.try_again(peer, asked, now).await,
            Task::Doubted { agent, swarm, member } => {
                if asked.may_doubt((agent.clone(), swarm, member.clone()), now) {
                    self.confirm(&agent, swarm, &member).await
                } else {
                    Ok(())
                }
            }
            Task::KeyMissing { agent, swarm, member, endpoint } => {
                self.complete(&agent, swarm, &member, endpoint).await
            }
            Task::Behind { agent, swarm } => match self.book().swarms.get(&(agent.clone(), swarm)) {
                Some(known) if asked.may_ask((agent.clone(), swarm), now) => {
                    self.ask_for_roster(&agent, known).await
                }
                _ => Ok(()),
            },
            Task::RosterWanted { agent, swarm, member } => {
                match self.book().swarms.get(&(agent.clone(), swarm)) {
                    Some(known) => self.tell_roster(&agent, known, &member).await,
                    None => Ok(()),
                }
            }
        };
        if let Err(error) = done {
            tracing::warn!(error = %crate::error::describe(&error), "a swarm could not be looked after");
        }
    }

    /// Tells a member the whole roster, in parts that come in this order.
    async fn tell_roster(&self, agent: &PeerId, swarm: &Swarm, member: &PeerId) -> Result<(), SwarmError> {
        for part in swarm.whole_roster() {
            let text = serde_json::to_string(&part).unwrap_or_default();
            self.say_to(agent, swarm, member, text).await?;
        }
        Ok(())
    }

    /// Has what waits for a peer tried at once, where it could not be reached before.
    async fn try_again(&self, peer: AgentId, asked: &mut Asked, now: Timestamp) -> Result<(), SwarmError> {
        if self.trouble_with(&peer).is_some() && asked.may_try(&peer, now) {
            self.hub().hurry(peer).await?;
        }
        Ok(())
    }

    /// Confirms the keys that were not confirmed for long, a few at a time.
    pub(crate) async fn confirm_stale(&self, most: usize) {
        let (now, ttl, book) = (self.hub().now(), self.config().key_ttl, self.book());
        let mut stale = Vec::new();
        for ((agent, id), swarm) in book.swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            for (member, known) in swarm.members.iter().filter(|(member, _)| *member != agent) {
                let seen = known.confirmed_at.unwrap_or(known.joined_at);
                if now.duration_since(seen) > ttl {
                    stale.push((seen, agent.clone(), *id, member.clone()));
                }
            }
        }
        stale.sort_unstable();
        for (_, agent, swarm, member) in stale.into_iter().take(most) {
            if let Err(error) = self.confirm(&agent, swarm, &member).await {
                tracing::debug!(%member, error = %error, "a key could not be confirmed");
            }
        }
    }
}
