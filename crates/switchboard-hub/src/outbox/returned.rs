//! Mail that the settings send on to somebody who refuses it: one who has gone, or who sends it on as well, so that it
//! would go round in circles.
//!
//! Whoever made the settings can put them right and sees no receipts, so the person is told, once for each way, and
//! again only after they have looked.

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Delivery, MessageId, trace};

use crate::error::HubError;
use crate::maintenance;
use crate::notice;
use crate::reads;
use crate::store::writer::Work;

/// The topic under which a door notes what the person was last told of a way.
const TOPIC: &str = "returned";

/// As much of the reason is told. It may be the word of a stranger.
const REASON: usize = 200;

/// Tells of a delivery that is about to be noted as refused, where it was made because of a forward.
pub(crate) fn tell(tx: &mut Work<'_>, delivery: &Delivery, reason: &str) -> Result<(), HubError> {
    let message = match reads::message(tx.db, delivery.message) {
        Ok(Some(stored)) => stored.message,
        Ok(None) | Err(HubError::DamagedMessage { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let recipients = trace(&message.to, &message.from, &tx.directory.value).unwrap_or_default();
    let recipient = recipients.into_iter().find(|recipient| recipient.agent == delivery.agent);
    let Some(first) = recipient.and_then(|recipient| recipient.forwarded_from) else { return Ok(()) };
    let (to, door, id) = (&delivery.agent, delivery.route.door(), message.id);
    let way = format!("{first} {to}");
    let metadata = Map::from_iter([("notice".to_owned(), Value::from("returned"))]);
    let is_told = match maintenance::get_note(tx.db, door, TOPIC, &way)? {
        Some(told) => is_unseen(tx, &told)?,
        None => false,
    };
    if !is_told {
        let plain = reason.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        let reason: String = plain.take(REASON).collect();
        let body = format!(
            "A message from {} to {} was refused: mail for {first} is sent on to {to}, and from there came \"{reason}\". Where \
             both sides send mail on to each other, one of the two has to stop: see `links.forwards` in the settings, and \
             switchboard route {first}. The message is kept: switchboard receipt {id}.",
            message.from, message.to
        );
        let told = notice::write(tx, &message, AgentId::human(), body, metadata.clone())?;
        maintenance::put_note(tx, door, TOPIC, &way, Some(&told.to_string()))?;
    }
    let body = format!(
        "Your message to {} was refused: mail for {first} is sent on to {to}, who does not take it. The person knows.",
        message.to
    );
    notice::write_to_sender(tx, &message, body, metadata)
}

/// Whether a notice still waits for the person to look at it.
fn is_unseen(tx: &Work<'_>, notice: &str) -> Result<bool, HubError> {
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
#[path = "returned_tests.rs"]
mod tests;
