//! What the hub itself has to say to somebody about a message.

use std::sync::Arc;

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Door, Kind, Message, MessageId, NativeId, Origin, Route, plan};

use crate::directory::HUB_NAME;
use crate::error::HubError;
use crate::outbox;
use crate::store::rows;
use crate::store::writer::Work;
use crate::submit;

/// Whether a message is the hub's own word, or that of another hub. Nobody answers that by itself: it may be that somebody answers too much.
pub fn is_notice(message: &Message) -> bool {
    let (from, origin) = (&message.from, &message.origin);
    let is_of_a_hub = match (&from.realm, &origin.route) {
        (None, _) => true,
        (Some(realm), Some(Route::Hub { hub })) => realm == hub,
        (Some(_), _) => false,
    };
    is_of_a_hub && from.name.as_str().eq_ignore_ascii_case(HUB_NAME) && origin.verified
}

/// Writes a message of the hub's own into the conversation of another; its id.
pub(crate) fn write(
    tx: &mut Work<'_>,
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
    // A sender that only reads its mailbox folder is told there.
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

/// Tells the sender of a message, who had no answer: one that came by a workspace has it, or a receipt, and those of
/// other owners are told by their own hub.
pub(crate) fn write_to_sender(
    tx: &mut Work<'_>,
    about: &Message,
    body: String,
    metadata: Map<String, Value>,
) -> Result<(), HubError> {
    let sender = tx.directory.value.canonical(&about.from);
    let is_told = about.origin.native.door == Door::Workspace || sender.realm.is_some();
    if !is_told && tx.directory.value.agent(&sender).is_some() {
        match write(tx, about, sender, body, metadata) {
            // A sender whose mail leads nowhere cannot be told, and that is no reason to refuse what it wrote.
            Ok(_) | Err(HubError::Unresolved(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
