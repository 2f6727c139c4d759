//! Notices about forwards that the target refuses.
//!
//! The target was removed, or it forwards back, which would make a loop. The person who configured the forward can
//! correct it but sees no receipts, so they are notified: once for each forward, and again only after they have read
//! the notice.

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Delivery, MessageId, resolve_recipients};

use crate::delivery::notice;
use crate::error::HubError;
use crate::journal::maintenance;
use crate::journal::reads;
use crate::store::writer::Transaction;

/// Topic of the note that stores the latest notice to the person about a forward.
const TOPIC: &str = "returned";

/// Maximum number of characters of the reason in the notice. The text may come from a stranger.
const REASON: usize = 200;

/// Notifies the person and the sender that a forwarded delivery is refused.
pub(crate) fn notify_refused(
    tx: &mut Transaction<'_>,
    delivery: &Delivery,
    reason: &str,
) -> Result<(), HubError> {
    let message = match reads::message(tx.db, delivery.message) {
        Ok(Some(stored)) => stored.message,
        Ok(None) | Err(HubError::DamagedMessage { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let recipients = resolve_recipients(&message.to, &message.from, &tx.directory.value).unwrap_or_default();
    let recipient = recipients.into_iter().find(|recipient| recipient.agent == delivery.agent);
    let Some(first) = recipient.and_then(|recipient| recipient.forwarded_from) else { return Ok(()) };
    let (to, door, id) = (&delivery.agent, delivery.route.door(), message.id);
    let forward = format!("{first} {to}");
    let metadata = Map::from_iter([("notice".to_owned(), Value::from("returned"))]);
    let is_notified = match maintenance::get_note(tx.db, door, TOPIC, &forward)? {
        Some(notice_id) => is_unseen(tx, &notice_id)?,
        None => false,
    };
    if !is_notified {
        let plain = reason.chars().map(|character| if character.is_control() { ' ' } else { character });
        let reason: String = plain.take(REASON).collect();
        let body = format!(
            "A message from {} to {} was refused: mail for {first} is forwarded to {to}, which refused it: \"{reason}\". If \
             both forward to each other, remove one of the two forwards: see `links.forwards` in the settings, and \
             switchboard route {first}. The message is stored: switchboard receipt {id}.",
            message.from, message.to
        );
        let notice_id = notice::write(tx, &message, AgentId::human(), body, metadata.clone())?;
        maintenance::put_note(tx, door, TOPIC, &forward, Some(&notice_id.to_string()))?;
    }
    let body = format!(
        "Your message to {} was refused: mail for {first} is forwarded to {to}, which refused it. The person was notified.",
        message.to
    );
    notice::write_to_sender(tx, &message, body, metadata)
}

/// Returns true if the person has not read a notice yet.
fn is_unseen(tx: &Transaction<'_>, notice: &str) -> Result<bool, HubError> {
    let Ok(id) = notice.parse::<MessageId>() else { return Ok(false) };
    let receipt = match reads::receipt(tx.db, id) {
        Ok(found) => found,
        Err(HubError::DamagedMessage { .. }) => None,
        Err(error) => return Err(error),
    };
    let waits = |delivery: &Delivery| {
        let is_there = delivery.state.is_waiting() || delivery.state.is_pending();
        is_there && delivery.milestones.seen.is_none()
    };
    Ok(receipt.is_some_and(|(_, receipt)| receipt.deliveries.iter().any(waits)))
}

#[cfg(test)]
#[path = "forward_loops_tests.rs"]
mod tests;
