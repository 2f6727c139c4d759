//! The way out: to each peer its messages in order, to all peers at once.
//!
//! A peer that cannot be reached holds up its own messages and nobody else's: they wait in the outbox, in their order,
//! and the first of them tries whether it is back.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use switchboard_core::{AgentId, Door, Message, MessageId, NativeId, Outcome, Route};
use switchboard_https::{Limits, Response};
use switchboard_hub::{Handoff, Outbound};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::{SwarmError, describe};
use crate::joining::error_of;
use crate::keys::{PublicKey, SecretKey};
use crate::ledger::{Identity, Member, Swarm};
use crate::swarms::Swarms;
use crate::translate::{Leaving, is_in, wire_id, wire_type};
use crate::wire::{ErrorBody, MessageType, Queued, SystemContent};

/// Most deliveries taken in one go.
const BATCH: usize = 64;

/// Most that wait here for one peer. Those beyond go back to the outbox and are tried again later.
const QUEUE: usize = 64;

/// How many answers of "I do not know you" in a row are taken for "not yet": the news of a new member, of a new key or of a
/// new master may be on its way. With the pauses between them that is about a minute, and longer for a peer that was away:
/// only answers count, and not the attempts before it was back.
const NOT_YET: u32 = 7;

/// Longest that a peer may have us wait before it is called again: as long as the outbox waits at most.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(15);

/// What is said of a message that waits for those before it, before the reason why they wait.
const BEHIND: &str = "an earlier message to this peer waits to be tried again";

/// An answer to a message is short.
const ANSWER: usize = 64 * 1024;

/// The queues of the peers that something is on its way to.
#[derive(Clone)]
pub(crate) struct Postman {
    swarms: Swarms,
    queues: Arc<Mutex<HashMap<AgentId, mpsc::Sender<Handoff>>>>,
    tasks: TaskTracker,
}

/// Delivers what the hub hands over, until it shuts down.
pub(crate) async fn run_deliveries(swarms: &Swarms, mut outbound: Outbound) {
    let postman = Postman { swarms: swarms.clone(), queues: Arc::default(), tasks: TaskTracker::new() };
    if let Err(error) = swarms.hub().retry_first_deliveries().await {
        tracing::warn!(error = %error, "the outbox could not be hurried");
    }
    loop {
        let handoffs = outbound.next(BATCH).await;
        if handoffs.is_empty() {
            break;
        }
        for handoff in handoffs {
            postman.enqueue(handoff).await;
        }
    }
    // What is on its way is finished, and reported on.
    postman.queues.lock().clear();
    postman.tasks.close();
    postman.tasks.wait().await;
}

impl Postman {
    /// Puts a delivery into the queue of its peer.
    async fn enqueue(&self, handoff: Handoff) {
        let Route::Peer { agent } = &handoff.delivery.route else {
            let reason = format!("the swarm door has no way '{}'", handoff.delivery.route);
            report(handoff, Outcome::Refused { reason }).await;
            return;
        };
        let peer = agent.clone();
        if let Some(handoff) = self.put(peer.clone(), handoff) {
            let reason = "many messages wait for this peer".to_owned();
            report(handoff, Outcome::Behind { reason }).await;
            // Those before it may have got there by now, and then nobody else hurries it.
            if self.is_idle(&peer) {
                self.hurry(peer).await;
            }
        }
    }

    /// Whether nothing waits in the queue of a peer.
    fn is_idle(&self, peer: &AgentId) -> bool {
        self.queues.lock().get(peer).is_none_or(|queue| queue.capacity() == queue.max_capacity())
    }

    /// Puts a delivery into a queue, which is started where there is none; gives it back where the queue is full.
    fn put(&self, peer: AgentId, handoff: Handoff) -> Option<Handoff> {
        let mut queues = self.queues.lock();
        let queue = queues.entry(peer.clone()).or_insert_with(|| self.start(peer));
        match queue.try_send(handoff) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(handoff) | mpsc::error::TrySendError::Closed(handoff)) => {
                Some(handoff)
            }
        }
    }

    fn start(&self, peer: AgentId) -> mpsc::Sender<Handoff> {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        let postman = self.clone();
        self.tasks.spawn(async move {
            let mut is_reached = false;
            while let Some(handoff) = queue.recv().await {
                is_reached = postman.deliver(&peer, handoff, &mut queue).await.unwrap_or(is_reached);
                // Not before all that was taken has gone: what finds no place in the queue would only go back, again
                // after each message.
                if is_reached && queue.is_empty() {
                    postman.hurry(peer.clone()).await;
                }
                // An idle peer needs no task. Nothing can be put into the queue while the list is held.
                let mut queues = postman.queues.lock();
                if queue.is_empty() {
                    queues.remove(&peer);
                    return;
                }
            }
        });
        sender
    }

    /// Delivers one message, unless earlier ones wait; says whether the peer was reached, where it was called.
    async fn deliver(
        &self,
        peer: &AgentId,
        handoff: Handoff,
        queue: &mut mpsc::Receiver<Handoff>,
    ) -> Option<bool> {
        let hub = self.swarms.hub();
        match hub.first_unsent(peer.clone()).await {
            Ok(Some(first)) if first < handoff.seq => {
                report(handoff, Outcome::Behind { reason: self.behind(peer) }).await;
                return None;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(error = %error, "the outbox could not be read"),
        }
        let outcome = self.swarms.send_to_peer(&handoff, peer).await;
        let trouble = match &outcome {
            Outcome::Unreachable { reason } => Some(reason.as_str()),
            Outcome::Delivered
            | Outcome::Shown
            | Outcome::Refused { .. }
            | Outcome::Behind { .. }
            | Outcome::Released => None,
        };
        let is_unreachable = trouble.is_some();
        self.swarms.note_trouble(peer, trouble);
        let mut reports = vec![(handoff, outcome)];
        if is_unreachable {
            // The others to this peer would fail likewise, each after its own wait. They are taken from the queue before
            // the failure is written: after that the failed one can be due again and be in the queue itself.
            while let Ok(behind) = queue.try_recv() {
                reports.push((behind, Outcome::Behind { reason: self.behind(peer) }));
            }
        }
        report_all(reports).await;
        Some(!is_unreachable)
    }

    /// Has what waits for a peer come, which can be reached.
    async fn hurry(&self, peer: AgentId) {
        if let Err(error) = self.swarms.hub().retry_peer_now(peer).await {
            tracing::warn!(error = %error, "the outbox could not be hurried");
        }
    }

    /// Why a message waits for those before it.
    fn behind(&self, peer: &AgentId) -> String {
        match self.swarms.trouble_with(peer) {
            Some(reason) => format!("{BEHIND}: {reason}"),
            None => BEHIND.to_owned(),
        }
    }
}

async fn report(handoff: Handoff, outcome: Outcome) {
    report_all(vec![(handoff, outcome)]).await;
}

/// Reports several outcomes in one transaction.
async fn report_all(reports: Vec<(Handoff, Outcome)>) {
    for result in Handoff::report_all(reports).await {
        if let Err(error) = result {
            tracing::warn!(error = %error, "a delivery could not be noted");
        }
    }
}

/// The key that a peer is likely to know us by, and the one that it may know instead.
struct SigningKeys {
    likely: Arc<SecretKey>,
    other: Option<Arc<SecretKey>>,
}

/// Everything about where a message goes.
struct Way {
    agent: PeerId,
    identity: Arc<Identity>,
    swarm: Arc<Swarm>,
    recipient: PeerId,
    member: Member,
}

impl Swarms {
    /// Sends one message to one peer; says how that ended.
    async fn send_to_peer(&self, handoff: &Handoff, peer: &AgentId) -> Outcome {
        let sent = async {
            let content = content_of(&handoff.message);
            let id = &handoff.message.origin.native.id;
            // The writer of the message, or a kick, may have changed the swarm just before, in another process.
            self.current().await?;
            match self.way_to(peer, content.as_ref(), id) {
                Ok(way) => self.try_to_send(handoff, &way, content.as_ref()).await,
                Err(reason) => Ok(Outcome::Refused { reason: reason.to_owned() }),
            }
        };
        sent.await.unwrap_or_else(|error: SwarmError| Outcome::Unreachable { reason: describe(&error) })
    }

    /// The way of a message to a peer, or why it has none.
    fn way_to(&self, peer: &AgentId, content: Option<&SystemContent>, id: &str) -> Result<Way, &'static str> {
        let book = self.book();
        let realm = peer.realm.as_ref().ok_or("it names no swarm")?;
        let (agent, swarm) = book.by_realm(realm).ok_or("this hub is in no such swarm")?;
        let identity = book.identities.get(agent).ok_or("this hub has no agent in that swarm")?;
        let everybody = swarm.members.iter().chain(&swarm.former);
        let found = everybody.filter(|(id, _)| *id != agent).find(|(_, member)| member.name == peer.name);
        let (recipient, member) = found.ok_or("it is not a member of the swarm")?;
        let way = Way {
            agent: agent.clone(),
            identity: identity.clone(),
            swarm: swarm.clone(),
            recipient: recipient.clone(),
            member: member.clone(),
        };
        match why_not(&way, content, id) {
            Some(reason) => Err(reason),
            None => Ok(way),
        }
    }

    async fn try_to_send(
        &self,
        handoff: &Handoff,
        way: &Way,
        content: Option<&SystemContent>,
    ) -> Result<Outcome, SwarmError> {
        let message = &handoff.message;
        let Way { agent, identity, swarm, recipient, member } = way;
        let leaving = Leaving {
            message,
            swarm,
            identity,
            recipient,
            in_reply_to: self.name_in(message.in_reply_to, swarm).await?,
            thread: self.name_in(Some(message.thread).filter(|thread| *thread != message.id), swarm).await?,
            now: self.hub().now(),
        };
        let action = content.map(|content| content.action.as_str());
        let peer = AgentId { name: member.name.clone(), realm: Some(swarm.realm.clone()) };
        if let Some(until) = self.busy_until(&peer) {
            let reason = format!("it does not want to be called before {until:.0}");
            return Ok(Outcome::Unreachable { reason });
        }
        let keys = self.signing_keys(way, handoff.seq, content).await?;
        let id = wire_id(message, swarm.swarm_id);
        let native = NativeId { door: Door::Swarm, scope: swarm.swarm_id.to_string(), id };
        // So that answers find it. False where it is known already, which it mostly is.
        self.hub().bind_native_id(message.id, native).await?;
        let limits = Limits { time: self.config().timeout, body: ANSWER };
        let send = async |key: &SecretKey| {
            let body = Bytes::from(leaving.to_text(key));
            self.post(&member.endpoint, "message", agent, body, limits).await
        };
        let mut answer = send(&keys.likely).await?;
        if let Some(other) = &keys.other
            && answer.status == StatusCode::UNAUTHORIZED
        {
            answer = send(other).await?;
        }
        self.note_clock(&answer, recipient).await;
        self.note_busy(&peer, wait_until(&answer, self.hub().now()));
        let mut outcome = judge(&answer, self.count_unknown(&peer, is_unknown(&answer)));
        if matches!(outcome, Outcome::Refused { .. }) {
            // The next message is another one.
            self.count_unknown(&peer, false);
        }
        if action == Some("master_transfer") {
            outcome = judge_transfer(&answer, outcome);
            let asked = &message.origin.native.id;
            match &outcome {
                Outcome::Delivered => self.transferred(agent, swarm.swarm_id, asked).await?,
                Outcome::Refused { reason } => {
                    self.not_transferred(agent, swarm.swarm_id, asked, reason).await?;
                }
                Outcome::Unreachable { .. } | Outcome::Behind { .. } | Outcome::Shown | Outcome::Released => {
                }
            }
        }
        Ok(outcome)
    }

    /// The keys that a message may be signed with: the agent's own, or, for what was written before the news of it and for
    /// the news itself, the one before it. Messages go in order, so that is the key which the peer knows by then, unless
    /// the master has told it more.
    async fn signing_keys(
        &self,
        way: &Way,
        seq: i64,
        content: Option<&SystemContent>,
    ) -> Result<SigningKeys, SwarmError> {
        let Way { agent, swarm, .. } = way;
        let current = self.key(agent).await?;
        let is_news = content.is_some_and(|content| content.action == "key_rotated");
        let told = content.filter(|_| is_news).and_then(|content| content.old_key.as_deref());
        let mut former = told.and_then(|text| PublicKey::parse(text).ok());
        for rotation in swarm.rotations.iter().take_while(|_| !is_news) {
            if self.seq_of(rotation.news, swarm).await?.is_some_and(|news| seq < news) {
                former = Some(rotation.old_key.clone());
                break;
            }
        }
        let former = match former.filter(|former| *former != current.public()) {
            Some(former) => self.former_key(agent, &former).await?.map(Arc::new),
            None => None,
        };
        Ok(match former {
            Some(former) => SigningKeys { likely: former, other: Some(current) },
            None => SigningKeys { likely: current, other: None },
        })
    }

    /// The place in the journal of something that we said in a swarm.
    async fn seq_of(&self, said: Uuid, swarm: &Swarm) -> Result<Option<i64>, SwarmError> {
        let scope = swarm.swarm_id.to_string();
        let known = self.hub().find_by_native(Some(Door::Swarm), &said.to_string()).await?;
        let Some((_, id)) = known.into_iter().find(|(known, _)| *known == scope) else { return Ok(None) };
        Ok(self.hub().message(id).await?.map(|stored| stored.seq))
    }

    /// What a message is called in a swarm, where it was ever in it.
    async fn name_in(&self, id: Option<MessageId>, swarm: &Swarm) -> Result<Option<String>, SwarmError> {
        let Some(id) = id else { return Ok(None) };
        let Some(stored) = self.hub().message(id).await? else { return Ok(None) };
        let message = stored.message;
        if is_in(&message, swarm) || message.from.realm.as_ref() == Some(&swarm.realm) {
            return Ok(Some(wire_id(&message, swarm.swarm_id)));
        }
        // A forward, a team or a channel may have led it there.
        Ok(self.hub().native_id_in(Door::Swarm, &swarm.swarm_id.to_string(), id).await?)
    }
}

/// Why a message has nothing to say any more to whom it was written, where that is so: it may have waited for days.
fn why_not(way: &Way, content: Option<&SystemContent>, id: &str) -> Option<&'static str> {
    let Way { agent, swarm, recipient, .. } = way;
    let (is_active, is_member) = (swarm.is_active(), swarm.members.contains_key(recipient));
    let is_own = content.and_then(SystemContent::subject) == Some(agent.as_str());
    match content.map(|content| content.action.as_str()) {
        Some("member_left") if is_own => is_active.then_some("the agent has come back to the swarm"),
        Some("kicked") => is_member.then_some("it has come back to the swarm"),
        // Those who were away must not hear that their master has left before they hear who leads instead.
        Some("swarm_dissolved" | "master_changed") => None,
        Some("member_kicked" | "member_left") if !is_member => Some("it is told by a message of its own"),
        // Where it leads already, the answer to the first one got lost.
        Some("master_transfer") if swarm.master != *recipient && !is_asked(swarm, id) => {
            Some("it was taken back")
        }
        _ => (!is_active || !is_member).then_some("it is no longer a member of the swarm"),
    }
}

/// Whether this is the question whether somebody would lead the swarm, and it still stands.
fn is_asked(swarm: &Swarm, id: &str) -> bool {
    swarm.handover.as_ref().is_some_and(|handover| handover.asked.to_string() == id)
}

/// What a message of the swarm itself says.
fn content_of(message: &Message) -> Option<SystemContent> {
    let is_system = wire_type(message) == MessageType::System;
    is_system.then(|| serde_json::from_str(&message.body).ok()).flatten()
}

/// Whether a peer says that it does not know our agent, its key, or the swarm.
fn is_unknown(answer: &Response) -> bool {
    matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}

/// What an answer says of a delivery, where the peer has answered so many times in a row that it does not know us.
fn judge(answer: &Response, unknown: u32) -> Outcome {
    let status = answer.status;
    let error = error_of(answer);
    let is_of_protocol = error.is_some() || is_refused_form(answer);
    let reason = match error {
        Some((code, message)) => format!("{} {code}: {message}", status.as_u16()),
        None => format!("it answered {}", status.as_u16()),
    };
    match status {
        // Not the agent's own word: a proxy whose server is down, or an address that somebody else has now. Too large is
        // too large, whoever says so.
        status if status.is_client_error() && !is_of_protocol && status != StatusCode::PAYLOAD_TOO_LARGE => {
            Outcome::Unreachable { reason: format!("{reason}, and not in the words of the protocol") }
        }
        StatusCode::OK | StatusCode::ACCEPTED => Outcome::Delivered,
        _ if is_unknown(answer) && unknown < NOT_YET => Outcome::Unreachable { reason },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Unreachable { reason }
        }
        // Ours or theirs is wrong by more than is allowed. Once it is set, the message is signed anew with its time.
        StatusCode::BAD_REQUEST if is_about_time(answer) => Outcome::Unreachable { reason },
        status if status.is_client_error() => Outcome::Refused { reason },
        _ => Outcome::Unreachable { reason },
    }
}

/// What an answer says of the question whether a member would lead the swarm. Programs that do not know the question take
/// it as they take any message, and would never lead.
fn judge_transfer(answer: &Response, outcome: Outcome) -> Outcome {
    let answered = serde_json::from_slice::<Queued>(&answer.body);
    if outcome == Outcome::Delivered && answered.map_or(true, |answered| answered.status != "accepted") {
        return Outcome::Refused { reason: "it has not answered that it accepts".to_owned() };
    }
    outcome
}

/// Whether this is how the existing implementation refuses the form of a message: 422, with `detail`.
fn is_refused_form(answer: &Response) -> bool {
    let body = serde_json::from_slice::<serde_json::Value>(&answer.body);
    answer.status == StatusCode::UNPROCESSABLE_ENTITY && body.is_ok_and(|body| body.get("detail").is_some())
}

/// Until when a peer does not want to be called again, where it has said so. The existing implementation writes the time
/// in seconds since 1970 where the number of seconds belongs.
fn wait_until(answer: &Response, now: Timestamp) -> Option<Timestamp> {
    const MOST_SECONDS: i64 = 100_000_000;
    let is_busy = matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let told =
        answer.headers.get(RETRY_AFTER).filter(|_| is_busy)?.to_str().ok()?.trim().parse::<i64>().ok()?;
    let until = if told > MOST_SECONDS {
        Timestamp::from_second(told).ok()?
    } else {
        now.saturating_add(SignedDuration::from_secs(told.max(0))).ok()?
    };
    // Nobody is kept waiting for longer than the outbox waits by itself.
    Some(until.min(now.saturating_add(LONGEST_WAIT).ok()?)).filter(|until| *until > now)
}

/// Whether a refusal says that it is about the time of the message.
fn is_about_time(answer: &Response) -> bool {
    let body = serde_json::from_slice::<ErrorBody>(&answer.body).ok();
    let details = body.and_then(|body| body.error.details);
    details.is_some_and(|details| details.get("field").is_some_and(|field| field == "timestamp"))
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
