//! Deliveries from the hub to nodes: a message becomes an injection, and its answer becomes a reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use switchboard_core::{Address, AgentId, Door, Kind, Message, MessageId, NativeId, NodeId, Outcome, Route};
use switchboard_hub::{Draft, Handoff, Outbound, fresh_mark, is_notice};
use tokio_util::sync::CancellationToken;

use crate::job::{FinishedTurn, NodeShared, QueuedInjection};
use crate::router::{Acked, Router, describe_status, is_steering, over_budget_reason};
use crate::turn::Turn;
use crate::wire::event::{EventBody, Injection, InjectionRef, TurnStatus};

/// Metadata key under which the router stores the requester of an injection.
pub(crate) const METADATA: &str = "router";

/// Client prefix of an injection from another door whose sender wants a reply.
const REPLY_CLIENT: &str = "door:";
const SILENT_CLIENT: &str = "news:";

/// Native-id scope of replies; within the scope, the id of a reply is its injection id.
pub(crate) const REPLY_SCOPE: &str = "answer";

/// Maximum number of deliveries per batch.
const BATCH: usize = 64;

/// Delivers messages to nodes until the hub closes its doors or `shutdown` fires.
pub async fn run(router: &Router, mut outbound: Outbound, shutdown: CancellationToken) {
    loop {
        let handoffs = tokio::select! {
            handoffs = outbound.next(BATCH) => handoffs,
            () = shutdown.cancelled() => return router.defer_handoffs(outbound.close().await),
        };
        if handoffs.is_empty() {
            return;
        }
        let mut woken: Vec<Arc<NodeShared>> = Vec::new();
        for handoff in handoffs {
            let id = handoff.message.id.to_string();
            let taken = accept(router, handoff);
            router.mark_arrived(&id);
            if let Some(node) = taken
                && !woken.iter().any(|known| Arc::ptr_eq(known, &node))
            {
                woken.push(node);
            }
        }
        // The acknowledgements must be in the log before an agent receives a prompt.
        router.log().flush();
        for node in woken {
            node.wake.notify_one();
        }
    }
}

/// Acknowledges an injection and enqueues it for its node. The caller wakes the returned node.
fn accept(router: &Router, handoff: Handoff) -> Option<Arc<NodeShared>> {
    let Route::Worker(id) = handoff.delivery.route.clone() else {
        let reason = format!("{} is not a route to a worker", handoff.delivery.route);
        router.report_outcome("", handoff, Outcome::Refused { reason });
        return None;
    };
    if is_steering(&handoff.message) {
        router.steer_turn(&id, handoff);
        return None;
    }
    let injection_id = derive_injection_id(&handoff.message, &id);
    if router.history().lock().is_finished(&injection_id) {
        router.report_outcome(&injection_id, handoff, Outcome::Shown);
        return None;
    }
    let is_known = router.history().lock().is_acked(&injection_id);
    let injection = build_injection(&handoff.message, &id, injection_id);
    // A client writes its own prompt, whereas a message from another door is text of another agent.
    let is_from_door =
        injection.client.starts_with(REPLY_CLIENT) || injection.client.starts_with(SILENT_CLIENT);
    let Some((job, node)) = router.node(&id) else {
        refuse_injection(router, handoff, injection, format!("{id} is not running"));
        return None;
    };
    // Injections of clients passed the budget check before the router accepted them.
    if is_from_door && !is_known && job.is_over_budget.load(Ordering::Relaxed) {
        refuse_injection(router, handoff, injection, over_budget_reason(&job));
        return None;
    }
    let mut view = node.state.lock();
    // The lease expired while the injection waited, so the redelivered handoff replaces the old one.
    if view.injection.as_deref() == Some(&*injection.at.injection_id) {
        router.hold_redelivery(injection.at.injection_id, handoff);
        return None;
    }
    let is_it =
        |waiting: &&mut QueuedInjection| waiting.injection.at.injection_id == injection.at.injection_id;
    if let Some(known) = view.queue.iter_mut().find(is_it) {
        known.handoff = Some(handoff);
        return None;
    }
    if view.is_closed {
        drop(view);
        refuse_injection(router, handoff, injection, format!("{id} is not running"));
        return None;
    }
    // Injections of clients already have a reserved queue slot.
    if is_from_door && !is_known && view.queue.len() + view.reserved >= router.config().queue {
        let reason = format!("{} injections wait for {id} already", view.queue.len());
        router.report_outcome(&injection.at.injection_id, handoff, Outcome::Unreachable { reason });
        return None;
    }
    let pin = acknowledge(router, &injection);
    let content = if is_from_door {
        handoff.message.render_prompt(fresh_mark()).into_owned()
    } else {
        handoff.message.body.clone()
    };
    view.queue.push_back(QueuedInjection { injection, content, handoff: Some(handoff), pin });
    drop(view);
    Some(node)
}

/// Logs `inject_ack` unless an earlier router already did.
///
/// Returns the first event of the injection, pinned in the log.
fn acknowledge(router: &Router, injection: &Injection) -> u64 {
    let acked = router.history().lock().remove_acked(&injection.at.injection_id);
    let seq = match acked {
        Some(Acked::Waiting(pinned)) => return pinned,
        Some(Acked::Sent) => router.log().newest(),
        None => router.log().append(&EventBody::InjectAck(injection.clone())),
    };
    router.log().pin(seq);
    seq
}

/// Refuses an injection that no node can receive.
///
/// The sender of a message gets a receipt. A client of the router waits for events instead, as does every client that
/// saw the acknowledgement.
fn refuse_injection(router: &Router, handoff: Handoff, injection: Injection, reason: String) {
    let id = injection.at.injection_id.clone();
    let is_from_door =
        injection.client.starts_with(REPLY_CLIENT) || injection.client.starts_with(SILENT_CLIENT);
    if !is_from_door || router.history().lock().is_acked(&id) {
        let pin = acknowledge(router, &injection);
        for event in Turn::new(injection).end(TurnStatus::Interrupted, Some(reason.clone()), 0) {
            router.log().append(&event);
        }
        router.log().unpin(pin);
        router.history().lock().finish(&id);
    }
    router.report_outcome(&id, handoff, Outcome::Refused { reason });
}

/// Derives the injection id from the message id.
///
/// A message to several nodes becomes one injection per node. The ids of these injections differ from the message id
/// only in the last bytes.
fn derive_injection_id(message: &Message, node: &NodeId) -> String {
    match message.to {
        Address::Group(_) => xor_node(message.id, node.node).to_string(),
        Address::Agent(_) | Address::Node(_) => message.id.to_string(),
    }
}

/// XORs a node number into an id; doing so twice restores the id.
fn xor_node(id: MessageId, node: u32) -> MessageId {
    let mut bytes = *id.as_bytes();
    for (byte, number) in bytes[12..].iter_mut().zip((node + 1).to_be_bytes()) {
        *byte ^= number;
    }
    MessageId::from_bytes(bytes)
}

fn build_injection(message: &Message, node: &NodeId, injection_id: String) -> Injection {
    let at = InjectionRef { job_id: node.job.to_string(), node_id: node.node, injection_id };
    let native = &message.origin.native;
    if native.door == Door::Workers {
        let request = message.metadata.get(METADATA);
        let text = |key: &str| request.and_then(|request| request.get(key)).and_then(Value::as_str);
        if let (Some(request_id), Some(client)) = (text("request_id"), text("client")) {
            return Injection { request_id: request_id.to_owned(), client: client.to_owned(), at };
        }
    }
    // A reply must not be answered with a reply, because two workers would otherwise answer each other forever.
    let is_answer =
        message.kind.as_str() == "submit_result" || native.door == Door::Workers || is_notice(message);
    let client = format!("{}{}", if is_answer { SILENT_CLIENT } else { REPLY_CLIENT }, native.door);
    Injection { request_id: native.id.clone(), client, at }
}

/// Returns true if another door sent the injection and its sender wants the answer as a message.
pub(crate) fn wants_reply(injection: &Injection) -> bool {
    injection.client.starts_with(REPLY_CLIENT)
}

/// Sends the answer of a turn to the sender of its message. The hub deduplicates repeated replies.
pub(crate) async fn reply(router: &Router, node: &NodeShared, ended: FinishedTurn) {
    let Some(message) = find_message(router, node, &ended.injection.at.injection_id).await else {
        tracing::warn!(
            injection = ended.injection.at.injection_id,
            "the message of a reply no longer exists"
        );
        return;
    };
    let (body, kind) = match (ended.status, ended.answer) {
        (TurnStatus::Completed, answer) => match answer.filter(|answer| !answer.trim().is_empty()) {
            Some(answer) => (answer, "submit_result"),
            // An agent without an answer sends no reply; the receipt already shows that the agent received the message.
            None => return,
        },
        (status, answer) => {
            let reason = ended.error.map(|error| format!(": {error}")).unwrap_or_default();
            let so_far = answer.map(|answer| format!("\n\nSo far:\n{answer}")).unwrap_or_default();
            (format!("{}{reason}.{so_far}", describe_status(status)), "status_update")
        }
    };
    let limit = router.hub().config().body_limit;
    let (from, to) = (AgentId::local(node.name.clone()), message.from.clone().into());
    let kind = Kind::parse(kind).unwrap_or_else(|_| Kind::status_update());
    let draft = router.hub().draft(Door::Workers, from, to, kind, truncate_front(body, limit));
    let draft = Draft {
        in_reply_to: Some(message.id),
        native: NativeId {
            scope: REPLY_SCOPE.to_owned(),
            id: ended.injection.at.injection_id,
            ..draft.native
        },
        native_is_id: false,
        verified: true,
        route: Some(Route::Worker(node.id.clone())),
        allow_unregistered: true,
        ..draft
    };
    if let Err(error) = router.hub().submit(draft).await {
        tracing::warn!(%error, to = %message.from, "a reply could not be sent");
    }
}

async fn find_message(router: &Router, node: &NodeShared, injection: &str) -> Option<Message> {
    let id: MessageId = injection.parse().ok()?;
    for id in [id, xor_node(id, node.id.node)] {
        if let Ok(Some(stored)) = router.hub().journal().message(id).await {
            return Some(stored.message);
        }
    }
    None
}

/// Truncates a text to the message limit, keeping the end, which contains the result.
fn truncate_front(text: String, limit: usize) -> String {
    const NOTE: &str = "(beginning truncated)\n";
    if text.len() <= limit {
        return text;
    }
    let mut cut = text.len() - limit.saturating_sub(NOTE.len());
    while !text.is_char_boundary(cut) {
        cut += 1;
    }
    format!("{NOTE}{}", &text[cut..])
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
