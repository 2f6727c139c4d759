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
use crate::ledger::{Announced, Swarm};
use crate::members::Told;
use crate::server::Task;
use crate::swarms::Swarms;
use crate::wire::Info;

/// How often at most an endpoint is asked because a signature failed: whoever sends bad ones must not make us ask.
const DOUBT_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// How often at most a master is asked for its roster.
const ROSTER_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// How often at most a member is told the whole roster: shorter than it waits itself before it asks again, and long enough
/// that nobody fills our journal with answers.
const TELL_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// How often at most a peer that writes but cannot be reached is tried for that.
const TRY_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// How long to wait at first before a new member's endpoint is asked for its key again; then twice as long each time, up to
/// an hour.
const LEARN_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// How often it is asked: for about a week.
const MOST_LEARNING: u32 = 160;

/// Most that is remembered of when who was asked.
const MOST_ASKED: usize = 10_000;

/// When whom was last asked, so that nobody is asked too often.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    doubted: HashMap<(PeerId, Uuid, PeerId), Timestamp>,
    rosters: HashMap<(PeerId, Uuid), Timestamp>,
    told: HashMap<(PeerId, Uuid, PeerId), Timestamp>,
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

    fn may_tell(&mut self, key: (PeerId, Uuid, PeerId), now: Timestamp) -> bool {
        if self.told.len() >= MOST_ASKED {
            self.told.retain(|_, at| now.duration_since(*at) < TELL_PAUSE);
        }
        let may = self.told.get(&key).is_none_or(|at| now.duration_since(*at) >= TELL_PAUSE);
        if may && self.told.len() < MOST_ASKED {
            self.told.insert(key, now);
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

impl Swarm {
    /// Takes in somebody who was announced without a key, or notes that its endpoint did not tell it.
    fn learn_key(&mut self, id: &PeerId, key: Option<PublicKey>, now: Timestamp) {
        let Some(announced) = self.announced.get_mut(id) else { return };
        let pause = LEARN_PAUSE.saturating_mul(1 << announced.asked.min(6));
        announced.asked = announced.asked.saturating_add(1);
        announced.ask_at = now.saturating_add(pause).unwrap_or(now);
        let (announced, asked) = (announced.clone(), announced.asked);
        if let Some(key) = key {
            let Announced { endpoint, joined_at, .. } = announced;
            // An endpoint does not prove the key that it names. Refused where the key or the id is another member's.
            self.insert_told(Told {
                id: id.clone(),
                endpoint,
                public_key: key,
                joined_at,
                provisional: true,
            });
        }
        if asked >= MOST_LEARNING {
            self.announced.remove(id);
        }
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

    /// Takes in a member that a master announced without its key, once its endpoint has named it. Where that cannot be
    /// asked now it is asked again later: the member may be about to start.
    async fn complete(&self, agent: &PeerId, swarm: Uuid, member: &PeerId) -> Result<(), SwarmError> {
        let book = self.book();
        let known = book.swarms.get(&(agent.clone(), swarm)).filter(|swarm| swarm.is_active());
        let announced = known.and_then(|swarm| swarm.announced.get(member));
        let Some(announced) = announced.cloned() else { return Ok(()) };
        let told = match self.ask_info(agent, &announced.endpoint).await {
            Ok((id, _)) if id != *member => Err(SwarmError::BadAnswer {
                endpoint: announced.endpoint.to_string(),
                problem: format!("it says that it is '{id}' and not '{member}'"),
            }),
            told => told,
        };
        let (now, id) = (self.hub().now(), member.clone());
        let (key, failed) = match told {
            Ok((_, key)) => (Some(key), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let change = move |swarm: &mut Swarm| {
            swarm.learn_key(&id, key, now);
            Ok(())
        };
        self.edit(agent, swarm, change).await?;
        failed
    }

    /// Asks for the keys of those who were announced without one, a few at a time, where it is time to.
    pub(crate) async fn complete_announced(&self, most: usize, now: Timestamp) {
        let mut due = Vec::new();
        for ((agent, id), swarm) in self.book().swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            let waiting = swarm.announced.iter().filter(|(_, announced)| announced.ask_at <= now);
            due.extend(waiting.map(|(member, _)| (agent.clone(), *id, member.clone())));
        }
        for (agent, swarm, member) in due.into_iter().take(most) {
            if let Err(error) = self.complete(&agent, swarm, &member).await {
                tracing::debug!(%member, error = %error, "the key of a new member could not be asked for");
            }
        }
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
            Task::KeyMissing { agent, swarm, member } => self.complete(&agent, swarm, &member).await,
            Task::Approved { agent, swarm } => {
                if asked.may_ask((agent.clone(), swarm), now) {
                    self.ask_approved(&agent, swarm).await;
                }
                Ok(())
            }
            Task::Behind { agent, swarm } => match self.book().swarms.get(&(agent.clone(), swarm)) {
                Some(known) if asked.may_ask((agent.clone(), swarm), now) => {
                    self.ask_for_roster(&agent, known).await
                }
                _ => Ok(()),
            },
            Task::RosterWanted { agent, swarm, member } => {
                match self.book().swarms.get(&(agent.clone(), swarm)) {
                    Some(known) if asked.may_tell((agent.clone(), swarm, member.clone()), now) => {
                        self.tell_roster(&agent, known, &member).await
                    }
                    _ => Ok(()),
                }
            }
        };
        if let Err(error) = done {
            tracing::warn!(error = %crate::error::describe(&error), "a swarm could not be looked after");
        }
    }

    /// Tells a member the whole roster, in parts that come in this order. Whoever asks an agent that leads no longer has
    /// missed that, and is told: nobody else's word for it counts there.
    async fn tell_roster(&self, agent: &PeerId, swarm: &Swarm, member: &PeerId) -> Result<(), SwarmError> {
        if swarm.master != *agent {
            return self.say_to(agent, swarm, member, swarm.master_changed(agent).to_text()).await;
        }
        for part in swarm.whole_roster() {
            let text = serde_json::to_string(&part).unwrap_or_default();
            self.say_to(agent, swarm, member, text).await?;
        }
        Ok(())
    }

    /// Has what waits for a peer tried at once, where it could not be reached before.
    async fn try_again(&self, peer: AgentId, asked: &mut Asked, now: Timestamp) -> Result<(), SwarmError> {
        if self.trouble_with(&peer).is_some() && asked.may_try(&peer, now) {
            self.hub().retry_peer_now(peer).await?;
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
