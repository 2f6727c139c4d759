//! Delivery to peers: in order for each peer, concurrently across peers.
//!
//! An unreachable peer blocks only its own messages. These wait in the outbox in order, and the first of them probes
//! whether the peer is reachable again.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use switchboard_core::{AgentId, Door, Message, MessageId, NativeId, Outcome, Route, error_chain};
use switchboard_https::{Limits, Response};
use switchboard_hub::{Handoff, Outbound};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::join_client::protocol_error;
use crate::keys::{PublicKey, SecretKey};
use crate::model::{Identity, Member, Swarm};
use crate::swarms::Swarms;
use crate::translate::{OutgoingEnvelope, belongs_to, wire_id, wire_type};
use crate::wire::{ErrorBody, MessageType, Queued, SystemContent};

/// Maximum number of deliveries that are dequeued at once.
const BATCH: usize = 64;

/// Maximum number of queued deliveries per peer. Further deliveries return to the outbox and are retried later.
const QUEUE_CAPACITY: usize = 64;

/// Number of consecutive "unknown sender" answers at which a delivery is refused.
///
/// Deliveries with fewer such answers are retried, because the announcement of a new member, key or master may still be
/// on its way. With the backoff between the retries this takes about a minute. A peer that was down has longer, because
/// only answers count and failed connections do not.
const MAX_UNKNOWN_ANSWERS: u32 = 7;

/// Maximum wait that a peer can request with `Retry-After`, equal to the maximum backoff of the outbox.
const MAX_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// Reason that is reported for a message that waits for earlier ones; the cause is appended.
const BEHIND_REASON: &str = "an earlier message to this peer waits for its retry";

/// Maximum size of an answer to a message.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Queues of the peers that have deliveries in flight.
#[derive(Clone)]
pub(crate) struct PeerQueues {
    swarms: Swarms,
    queues: Arc<Mutex<HashMap<AgentId, mpsc::Sender<Handoff>>>>,
    tasks: TaskTracker,
}

/// Delivers the messages that the hub hands over, until the hub shuts down.
pub(crate) async fn run_deliveries(swarms: &Swarms, mut outbound: Outbound) {
    let peer_queues =
        PeerQueues { swarms: swarms.clone(), queues: Arc::default(), tasks: TaskTracker::new() };
    if let Err(error) = swarms.hub().deliveries().retry_first().await {
        tracing::warn!(error = %error, "pending deliveries could not be rescheduled");
    }
    loop {
        let handoffs = outbound.next(BATCH).await;
        if handoffs.is_empty() {
            break;
        }
        for handoff in handoffs {
            peer_queues.enqueue(handoff).await;
        }
    }
    // Deliveries in flight are completed and reported before the shutdown.
    peer_queues.queues.lock().clear();
    peer_queues.tasks.close();
    peer_queues.tasks.wait().await;
}

impl PeerQueues {
    /// Enqueues a delivery for its peer.
    async fn enqueue(&self, handoff: Handoff) {
        let Route::Peer { agent } = &handoff.delivery.route else {
            let reason = format!("the swarm door has no route '{}'", handoff.delivery.route);
            report(handoff, Outcome::Refused { reason }).await;
            return;
        };
        let peer = agent.clone();
        if let Some(handoff) = self.try_enqueue(peer.clone(), handoff) {
            let reason = "many messages wait for this peer".to_owned();
            report(handoff, Outcome::Blocked { reason }).await;
            // The queue may have drained in the meantime, and then no other task would trigger the retry.
            if self.is_idle(&peer) {
                self.hurry(peer).await;
            }
        }
    }

    /// Returns true if the queue of a peer is empty.
    fn is_idle(&self, peer: &AgentId) -> bool {
        self.queues.lock().get(peer).is_none_or(|queue| queue.capacity() == queue.max_capacity())
    }

    /// Enqueues a delivery and starts the peer's worker if none is running. Returns the delivery if the queue is full.
    fn try_enqueue(&self, peer: AgentId, handoff: Handoff) -> Option<Handoff> {
        let mut queues = self.queues.lock();
        let queue = queues.entry(peer.clone()).or_insert_with(|| self.spawn_worker(peer));
        match queue.try_send(handoff) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(handoff) | mpsc::error::TrySendError::Closed(handoff)) => {
                Some(handoff)
            }
        }
    }

    fn spawn_worker(&self, peer: AgentId) -> mpsc::Sender<Handoff> {
        let (sender, mut queue) = mpsc::channel(QUEUE_CAPACITY);
        let peer_queues = self.clone();
        self.tasks.spawn(async move {
            let mut is_reached = false;
            while let Some(handoff) = queue.recv().await {
                is_reached = peer_queues.deliver(&peer, handoff, &mut queue).await.unwrap_or(is_reached);
                // Wait until the queue is drained. Otherwise the deliveries that do not fit would return to the outbox
                // after each message.
                if is_reached && queue.is_empty() {
                    peer_queues.hurry(peer.clone()).await;
                }
                // An idle peer needs no worker. No delivery can be enqueued while the lock is held.
                let mut queues = peer_queues.queues.lock();
                if queue.is_empty() {
                    queues.remove(&peer);
                    return;
                }
            }
        });
        sender
    }

    /// Delivers one message unless earlier messages to the peer wait.
    ///
    /// Returns whether the peer was reached, or `None` if the peer was not called.
    async fn deliver(
        &self,
        peer: &AgentId,
        handoff: Handoff,
        queue: &mut mpsc::Receiver<Handoff>,
    ) -> Option<bool> {
        let hub = self.swarms.hub();
        match hub.deliveries().first_unsent(peer.clone()).await {
            Ok(Some(first)) if first < handoff.seq => {
                report(handoff, Outcome::Blocked { reason: self.waiting_reason(peer) }).await;
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
            | Outcome::Blocked { .. }
            | Outcome::Released => None,
        };
        let is_unreachable = trouble.is_some();
        self.swarms.record_failure(peer, trouble);
        let mut reports = vec![(handoff, outcome)];
        if is_unreachable {
            // The other queued deliveries to this peer would fail as well, each after its own timeout. They are
            // dequeued before the failure is stored, because after that the failed delivery can be due again and be in
            // the queue itself.
            while let Ok(waiting_reason) = queue.try_recv() {
                reports.push((waiting_reason, Outcome::Blocked { reason: self.waiting_reason(peer) }));
            }
        }
        report_all(reports).await;
        Some(!is_unreachable)
    }

    /// Makes the pending deliveries to a reachable peer due immediately, ahead of their backoff.
    async fn hurry(&self, peer: AgentId) {
        if let Err(error) = self.swarms.hub().deliveries().retry_peer_now(peer).await {
            tracing::warn!(error = %error, "pending deliveries could not be rescheduled");
        }
    }

    /// Describes why a message waits for earlier ones.
    fn waiting_reason(&self, peer: &AgentId) -> String {
        match self.swarms.last_failure(peer) {
            Some(reason) => format!("{BEHIND_REASON}: {reason}"),
            None => BEHIND_REASON.to_owned(),
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
            tracing::warn!(error = %error, "a delivery outcome could not be stored");
        }
    }
}

/// Signing keys for a message: the key that the peer most likely knows, and a fallback.
struct SigningKeys {
    likely: Arc<SecretKey>,
    other: Option<Arc<SecretKey>>,
}

/// Sender, swarm and recipient of a delivery.
struct PeerRoute {
    agent: PeerId,
    identity: Arc<Identity>,
    swarm: Arc<Swarm>,
    recipient: PeerId,
    member: Member,
}

impl Swarms {
    /// Sends one message to one peer and returns the outcome.
    async fn send_to_peer(&self, handoff: &Handoff, peer: &AgentId) -> Outcome {
        let sent = async {
            let content = parse_system_content(&handoff.message);
            let id = &handoff.message.origin.native.id;
            // Another process may have changed the swarm just before, for example the one that sent this message, or a
            // kick.
            self.current().await?;
            match self.find_route(peer, content.as_ref(), id) {
                Ok(route) => self.send_on_route(handoff, &route, content.as_ref()).await,
                Err(reason) => Ok(Outcome::Refused { reason: reason.to_owned() }),
            }
        };
        sent.await.unwrap_or_else(|error: SwarmError| Outcome::Unreachable { reason: error_chain(&error) })
    }

    /// Finds the route of a message to a peer. The error is the reason why there is none.
    fn find_route(
        &self,
        peer: &AgentId,
        content: Option<&SystemContent>,
        id: &str,
    ) -> Result<PeerRoute, &'static str> {
        let snapshot = self.snapshot();
        let realm = peer.realm.as_ref().ok_or("it names no swarm")?;
        let (agent, swarm) = snapshot.by_realm(realm).ok_or("this hub is in no such swarm")?;
        let identity = snapshot.identities.get(agent).ok_or("this hub has no agent in that swarm")?;
        let everybody = swarm.members.iter().chain(&swarm.former);
        let found = everybody.filter(|(id, _)| *id != agent).find(|(_, member)| member.name == peer.name);
        let (recipient, member) = found.ok_or("it is not a member of the swarm")?;
        let route = PeerRoute {
            agent: agent.clone(),
            identity: identity.clone(),
            swarm: swarm.clone(),
            recipient: recipient.clone(),
            member: member.clone(),
        };
        match find_obsolete_reason(&route, content, id) {
            Some(reason) => Err(reason),
            None => Ok(route),
        }
    }

    async fn send_on_route(
        &self,
        handoff: &Handoff,
        route: &PeerRoute,
        content: Option<&SystemContent>,
    ) -> Result<Outcome, SwarmError> {
        let message = &handoff.message;
        let PeerRoute { agent, identity, swarm, recipient, member } = route;
        let outgoing = OutgoingEnvelope {
            message,
            swarm,
            identity,
            recipient,
            in_reply_to: self.wire_id_in(message.in_reply_to, swarm).await?,
            thread: self
                .wire_id_in(Some(message.thread).filter(|thread| *thread != message.id), swarm)
                .await?,
            now: self.hub().now(),
        };
        let action = content.map(|content| content.action.as_str());
        let peer = AgentId { name: member.name.clone(), realm: Some(swarm.realm.clone()) };
        if let Some(until) = self.retry_after(&peer) {
            let reason = format!("it asked for no calls before {until:.0}");
            return Ok(Outcome::Unreachable { reason });
        }
        let keys = self.signing_keys(route, handoff.seq, content).await?;
        let id = wire_id(message, swarm.swarm_id);
        let native = NativeId { door: Door::Swarm, scope: swarm.swarm_id.to_string(), id };
        // The alias lets replies find the message. `bind` returns false if the alias exists already, which is the usual
        // case.
        self.hub().native_ids().bind(message.id, native).await?;
        let limits = Limits { time: self.config().timeout, body: MAX_ANSWER_BYTES };
        let send = async |key: &SecretKey| {
            let body = Bytes::from(outgoing.to_text(key));
            self.post(&member.endpoint, "message", agent, body, limits).await
        };
        let mut answer = send(&keys.likely).await?;
        if let Some(other) = &keys.other
            && answer.status == StatusCode::UNAUTHORIZED
        {
            answer = send(other).await?;
        }
        self.record_clock_skew(&answer, recipient).await;
        self.set_retry_after(&peer, parse_retry_after(&answer, self.hub().now()));
        let mut outcome =
            classify_answer(&answer, self.count_unknown_answers(&peer, is_unknown_sender(&answer)));
        if matches!(outcome, Outcome::Refused { .. }) {
            // The next message starts a new count.
            self.count_unknown_answers(&peer, false);
        }
        if action == Some("master_transfer") {
            outcome = classify_transfer_answer(&answer, outcome);
            let native_id = &message.origin.native.id;
            match &outcome {
                Outcome::Delivered => self.complete_transfer(agent, swarm.swarm_id, native_id).await?,
                Outcome::Refused { reason } => {
                    self.end_transfer(agent, swarm.swarm_id, native_id, reason).await?;
                }
                Outcome::Unreachable { .. }
                | Outcome::Blocked { .. }
                | Outcome::Shown
                | Outcome::Released => {}
            }
        }
        Ok(outcome)
    }

    /// Returns the keys that a message may be signed with.
    ///
    /// The current key is used by default. Messages from before a rotation, and the `key_rotated` message itself, are
    /// signed with the previous key. Messages are delivered in order, so the peer knows the previous key by then,
    /// unless the master has sent it a newer roster.
    async fn signing_keys(
        &self,
        route: &PeerRoute,
        seq: i64,
        content: Option<&SystemContent>,
    ) -> Result<SigningKeys, SwarmError> {
        let PeerRoute { agent, swarm, .. } = route;
        let current = self.key(agent).await?;
        let is_news = content.is_some_and(|content| content.action == "key_rotated");
        let announced_key = content.filter(|_| is_news).and_then(|content| content.old_key.as_deref());
        let mut former = announced_key.and_then(|text| PublicKey::parse(text).ok());
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

    /// Returns the journal sequence number of an announcement.
    async fn seq_of(&self, wire_id: Uuid, swarm: &Swarm) -> Result<Option<i64>, SwarmError> {
        let scope = swarm.swarm_id.to_string();
        let known = self.hub().native_ids().find(Some(Door::Swarm), &wire_id.to_string()).await?;
        let Some((_, id)) = known.into_iter().find(|(known, _)| *known == scope) else { return Ok(None) };
        Ok(self.hub().journal().message(id).await?.map(|stored| stored.seq))
    }

    /// Returns the wire id of a message in a swarm, if the message was ever part of the swarm.
    async fn wire_id_in(&self, id: Option<MessageId>, swarm: &Swarm) -> Result<Option<String>, SwarmError> {
        let Some(id) = id else { return Ok(None) };
        let Some(stored) = self.hub().journal().message(id).await? else { return Ok(None) };
        let message = stored.message;
        if belongs_to(&message, swarm) || message.from.realm.as_ref() == Some(&swarm.realm) {
            return Ok(Some(wire_id(&message, swarm.swarm_id)));
        }
        // A forward, a team or a channel may have routed the message into the swarm.
        Ok(self.hub().native_ids().of_message(Door::Swarm, &swarm.swarm_id.to_string(), id).await?)
    }
}

/// Returns why a message is obsolete for its recipient, if it is. The message may have waited for days.
fn find_obsolete_reason(
    route: &PeerRoute,
    content: Option<&SystemContent>,
    id: &str,
) -> Option<&'static str> {
    let PeerRoute { agent, swarm, recipient, .. } = route;
    let (is_active, is_member) = (swarm.is_active(), swarm.members.contains_key(recipient));
    let is_own = content.and_then(SystemContent::subject) == Some(agent.as_str());
    match content.map(|content| content.action.as_str()) {
        Some("member_left") if is_own => is_active.then_some("the agent has come back to the swarm"),
        Some("kicked") => is_member.then_some("it has come back to the swarm"),
        // A member that was offline must learn who the new master is before it learns that the old master has left.
        Some("swarm_dissolved" | "master_changed") => None,
        Some("member_kicked" | "member_left") if !is_member => Some("it gets its own message about this"),
        // If the recipient is already the master, the answer to the first request was lost, and the request is sent
        // again.
        Some("master_transfer") if swarm.master != *recipient && !is_transfer_open(swarm, id) => {
            Some("the request was cancelled")
        }
        _ => (!is_active || !is_member).then_some("it is no longer a member of the swarm"),
    }
}

/// Returns true if `id` is the transfer request of the open handover.
fn is_transfer_open(swarm: &Swarm, id: &str) -> bool {
    swarm.handover.as_ref().is_some_and(|handover| handover.asked.to_string() == id)
}

/// Parses the content of a system message.
fn parse_system_content(message: &Message) -> Option<SystemContent> {
    let is_system = wire_type(message) == MessageType::System;
    is_system.then(|| serde_json::from_str(&message.body).ok()).flatten()
}

/// Returns true if the peer answers that it does not know our agent, our agent's key or the swarm.
fn is_unknown_sender(answer: &Response) -> bool {
    matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}

/// Classifies an answer to a delivery; `unknown` counts consecutive "unknown sender" answers.
fn classify_answer(answer: &Response, unknown: u32) -> Outcome {
    let status = answer.status;
    let error = protocol_error(answer);
    let is_of_protocol = error.is_some() || is_validation_error(answer);
    let reason = match error {
        Some((code, message)) => format!("{} {code}: {message}", status.as_u16()),
        None => format!("it answered {}", status.as_u16()),
    };
    match status {
        // The answer comes from a proxy whose server is down, or from a new owner of the address, and not from the
        // agent. A size limit counts, whichever server enforces it.
        status if status.is_client_error() && !is_of_protocol && status != StatusCode::PAYLOAD_TOO_LARGE => {
            Outcome::Unreachable { reason: format!("{reason}, which is not a protocol error") }
        }
        StatusCode::OK | StatusCode::ACCEPTED => Outcome::Delivered,
        _ if is_unknown_sender(answer) && unknown < MAX_UNKNOWN_ANSWERS => Outcome::Unreachable { reason },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Unreachable { reason }
        }
        // One of the two clocks is wrong. Once that clock is corrected, a retry with a new signing time is accepted.
        StatusCode::BAD_REQUEST if is_clock_error(answer) => Outcome::Unreachable { reason },
        status if status.is_client_error() => Outcome::Refused { reason },
        _ => Outcome::Unreachable { reason },
    }
}

/// Classifies the answer to a transfer request.
///
/// Programs that do not know the request accept it like any message and would never become master, so a plain
/// acceptance counts as a refusal.
fn classify_transfer_answer(answer: &Response, outcome: Outcome) -> Outcome {
    let answered = serde_json::from_slice::<Queued>(&answer.body);
    if outcome == Outcome::Delivered && answered.map_or(true, |answered| answered.status != "accepted") {
        return Outcome::Refused { reason: "it has not answered that it accepts".to_owned() };
    }
    outcome
}

/// Returns true if the existing implementation rejects the message as invalid: 422 with `detail`.
fn is_validation_error(answer: &Response) -> bool {
    let body = serde_json::from_slice::<serde_json::Value>(&answer.body);
    answer.status == StatusCode::UNPROCESSABLE_ENTITY && body.is_ok_and(|body| body.get("detail").is_some())
}

/// Returns the time until which a peer refuses calls, from `Retry-After`.
///
/// The existing implementation writes a Unix time instead of a number of seconds.
fn parse_retry_after(answer: &Response, now: Timestamp) -> Option<Timestamp> {
    // This is three years as a number of seconds, and March 1973 as a Unix time. No peer means either, so the value
    // separates the two forms.
    const MAX_SECONDS: i64 = 100_000_000;
    let is_busy = matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let seconds =
        answer.headers.get(RETRY_AFTER).filter(|_| is_busy)?.to_str().ok()?.trim().parse::<i64>().ok()?;
    let until = if seconds > MAX_SECONDS {
        Timestamp::from_second(seconds).ok()?
    } else {
        now.saturating_add(SignedDuration::from_secs(seconds.max(0))).ok()?
    };
    // A peer cannot request more than the maximum backoff of the outbox.
    Some(until.min(now.saturating_add(MAX_RETRY_AFTER).ok()?)).filter(|until| *until > now)
}

/// Returns true if the peer refuses the message because of its timestamp.
fn is_clock_error(answer: &Response) -> bool {
    let body = serde_json::from_slice::<ErrorBody>(&answer.body).ok();
    let details = body.and_then(|body| body.error.details);
    details.is_some_and(|details| details.get("field").is_some_and(|field| field == "timestamp"))
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
