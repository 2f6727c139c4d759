//! Receipts for messages of other hubs: which agent has seen or acknowledged a message.
//!
//! The hub records each pending receipt in the transaction that causes it, and clears the receipt once the server has
//! stored it. A receipt that is repeated after a crash changes nothing at the other hub, so it needs no idempotency
//! key.

use std::collections::BTreeMap;
use std::convert::Infallible;

use switchboard_core::Name;
use switchboard_hub::{ReceiptStatus, ReceiptUpdate};
use switchboard_sys::debounce::Debounce;

use crate::error::NatsError;
use crate::publisher::Publisher;
use crate::session::Session;
use crate::wire::{EnvelopeKind, ReaderReceipt, ReaderState, ReceiptBatch, VERSION, to_bytes};

/// Maximum number of receipts per batch message. With the longest notes, they still fit into one payload.
const BATCH: usize = 256;

/// Maximum number of characters of a note that are sent.
const MAX_NOTE: usize = 500;

/// Sends pending receipts to other hubs as they arise, until an error occurs.
pub(crate) async fn run(session: &Session) -> Result<Infallible, NatsError> {
    let mut changes = session.hub.changes();
    let mut publisher = Publisher::open(session).await?;
    loop {
        while send_batch(session, &mut publisher).await? {}
        changes.next().await;
        Debounce::RECEIPTS.wait().await;
    }
}

/// Sends one batch of pending receipts; returns false if there were none.
async fn send_batch(session: &Session, publisher: &mut Publisher<()>) -> Result<bool, NatsError> {
    let pending = session.hub.relay().pending_receipts(BATCH).await?;
    if pending.is_empty() {
        return Ok(false);
    }
    let mut by_hub: BTreeMap<&Name, Vec<_>> = BTreeMap::new();
    for update in pending.iter().filter_map(|receipt| receipt.update.as_ref()) {
        if let Some(word) = to_receipt(update) {
            by_hub.entry(&update.hub).or_default().push(serde_json::to_value(word).unwrap_or_default());
        }
    }
    for (hub, receipts) in by_hub {
        let envelope = ReceiptBatch {
            v: VERSION,
            envelope: EnvelopeKind::ReceiptBatch,
            hub: session.me.clone(),
            said: receipts,
        };
        let (subject, id) = (session.subjects.receipt(&session.me, hub), session.hub.next_id().to_string());
        if publisher.send(subject, id, to_bytes(&envelope), ()).await?.is_some() {
            tracing::warn!(%hub, "the states of its messages are larger than NATS allows (max_payload)");
        }
    }
    while publisher.next_ack().await?.is_some() {}
    session.hub.relay().clear_receipts(pending).await?;
    Ok(true)
}

fn to_receipt(update: &ReceiptUpdate) -> Option<ReaderReceipt> {
    let (became, note) = match &update.status {
        ReceiptStatus::Seen => (ReaderState::Seen, None),
        ReceiptStatus::Acknowledged { note } => (ReaderState::Acknowledged, note.as_ref()),
        // These receipts were already sent when the message was ingested.
        ReceiptStatus::Accepted | ReceiptStatus::Refused { .. } => return None,
    };
    let note = note.map(|note| note.chars().take(MAX_NOTE).collect());
    Some(ReaderReceipt { id: update.id, agent: update.agent.clone(), became, note })
}
