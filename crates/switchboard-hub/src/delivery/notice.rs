//! Notices: messages that the hub itself writes about other messages.

use std::sync::Arc;

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Door, Kind, Message, MessageId, NativeId, Origin, Route, plan};

use crate::delivery::outbox;
use crate::directory::HUB_NAME;
use crate::error::HubError;
use crate::journal::submit;
use crate::store::rows;
use crate::store::writer::Transaction;

/// Returns true if a message is a notice of this hub or of another hub.
///
/// No program answers a notice automatically, because the notice may be about agents that answer too much.
pub fn is_notice(message: &Message) -> bool {
    let (from, origin) = (&message.from, &message.origin);
    let is_of_a_hub = match (&from.realm, &origin.route) {
        (None, _) => true,
        (Some(realm), Some(Route::Hub { hub })) => realm == hub,
        (Some(_), _) => false,
    };
    is_of_a_hub && from.name.as_str().eq_ignore_ascii_case(HUB_NAME) && origin.verified
}

/// Writes a notice into the conversation of another message; returns its id.
pub(crate) fn write(
    tx: &mut Transaction<'_>,
    about: &Message,
    to: AgentId,
    body: String,
    metadata: Map<String, Value>,
) -> Result<MessageId, HubError> {
    let millis = u64::try_from(tx.now.as_millisecond()).unwrap_or_default();
    let id = MessageId::from_parts(millis, fastrand::u128(..));
    let Ok(hub) = HUB_NAME.parse::<AgentId>() else { return Ok(id) };
    let notice = Message {
        id,
        from: hub,
        to: to.into(),
        kind: Kind::status_update(),
        body,
        in_reply_to: Some(about.id),
        thread: about.thread,
        sent_at: tx.now,
        expires_at: None,
        metadata,
        origin: Origin {
            native: NativeId { door: about.origin.native.door, scope: HUB_NAME.into(), id: id.to_string() },
            verified: true,
            route: None,
        },
        via: Vec::new(),
        signed: None,
    };
    let digest = rows::digest(&notice);
    // The mailbox folder is included for a sender that reads nothing else.
    let planned = plan(&notice, &tx.directory.value.clone(), true)?;
    let seq = tx.next_seq()?;
    tx.append(seq, &notice, &digest)?;
    submit::bind(tx, &notice.origin.native, seq)?;
    let notice = Arc::new(notice);
    for (number, planned) in planned.deliveries.into_iter().enumerate() {
        outbox::enqueue(tx, &notice, seq, number, planned, None)?;
    }
    Ok(id)
}

/// Notifies the sender of a message, unless the sender is notified in another way.
///
/// A sender in a workspace has the answer or a receipt, and a sender of another owner is notified by its own hub.
pub(crate) fn write_to_sender(
    tx: &mut Transaction<'_>,
    about: &Message,
    body: String,
    metadata: Map<String, Value>,
) -> Result<(), HubError> {
    let sender = tx.directory.value.canonical(&about.from);
    let is_told = about.origin.native.door == Door::Workspace || sender.realm.is_some();
    if !is_told && tx.directory.value.agent(&sender).is_some() {
        match write(tx, about, sender, body, metadata) {
            // A sender without a mailbox cannot be notified; its message is accepted anyway.
            Ok(_) | Err(HubError::Unresolved(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
