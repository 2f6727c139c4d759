//! Deduplication: a message is recognised by its native id or idempotency key.

use rusqlite::{OptionalExtension, params};
use switchboard_core::{Message, MessageId, NativeId, Route};

use super::Accepted;
use crate::error::HubError;
use crate::store::rows::Stored;
use crate::store::writer::Transaction;

/// Finds the earlier result for a duplicate: a message whose native id or message id was already accepted.
pub(super) fn find_duplicate(
    tx: &Transaction<'_>,
    message: &Message,
    digest: &[u8; 32],
) -> Result<Option<Accepted>, HubError> {
    let native = &message.origin.native;
    let found = tx
        .db
        .prepare_cached(
            "SELECT seq, id, digest FROM messages WHERE id = ?4 OR seq = \
             (SELECT seq FROM native_ids WHERE door = ?1 AND id = ?2 AND scope = ?3) ORDER BY id = ?4 LIMIT 1",
        )?
        .query_row(
            params![native.door.as_str(), native.id, native.scope, message.id.as_bytes()],
            |row| Ok((row.get(0)?, MessageId::from_bytes(row.get(1)?), row.get::<_, [u8; 32]>(2)?)),
        )
        .optional()?;
    let Some((seq, id, first)) = found else { return Ok(None) };
    if &first != digest && !is_same_shared_post(tx, id, message)? {
        return Err(HubError::Conflict { native_id: native.id.clone(), first: id });
    }
    let deliveries = crate::journal::reads::deliveries(tx.db, seq, id)?;
    Ok(Some(Accepted { id, seq, deliveries, duplicate: true, stopped: None }))
}

/// Returns true if the link now delivers a message that was ingested from a shared folder.
///
/// The link's version is complete: a file contains fewer fields of a message than the hub that wrote it knows.
fn is_same_shared_post(tx: &Transaction<'_>, id: MessageId, message: &Message) -> Result<bool, HubError> {
    if id != message.id || !matches!(message.origin.route, Some(Route::Hub { .. })) {
        return Ok(false);
    }
    let Some(Stored { message: first, .. }) = crate::journal::reads::message(tx.db, id)? else {
        return Ok(false);
    };
    Ok(matches!(first.origin.route, Some(Route::Channel { .. }))
        && first.from.name == message.from.name
        && first.kind == message.kind
        && first.body == message.body)
}

/// Prefix of the native-id scope that holds a sender's idempotency keys.
const KEY_SCOPE: &str = "key of ";

/// Returns true if a scope holds idempotency keys, which other agents cannot use as message ids.
pub fn is_idempotency_scope(scope: &str) -> bool {
    scope.starts_with(KEY_SCOPE)
}

/// Builds the native id under which an idempotency key is stored.
///
/// No protocol and no other sender uses the scope of that id.
pub(super) fn idempotency_key(message: &Message, key: String) -> NativeId {
    NativeId { door: message.origin.native.door, scope: format!("{KEY_SCOPE}{}", message.from), id: key }
}

/// Finds the earlier result of a message that was sent under the same idempotency key.
///
/// The message has to have the same content and recipient. Times that each attempt adds may differ.
pub(super) fn find_by_idempotency_key(
    tx: &Transaction<'_>,
    message: &Message,
    key: &NativeId,
) -> Result<Option<Accepted>, HubError> {
    let found: Option<[u8; 16]> = tx
        .db
        .prepare_cached(
            "SELECT id FROM messages WHERE seq = (SELECT seq FROM native_ids WHERE door = ?1 AND id = ?2 AND scope = ?3)",
        )?
        .query_row(params![key.door.as_str(), key.id, key.scope], |row| row.get(0))
        .optional()?;
    let Some(id) = found.map(MessageId::from_bytes) else { return Ok(None) };
    let Some(Stored { seq, message: first, .. }) = crate::journal::reads::message(tx.db, id)? else {
        return Ok(None);
    };
    let same = first.to == message.to
        && first.kind == message.kind
        && first.body == message.body
        && first.in_reply_to == message.in_reply_to;
    if !same {
        return Err(HubError::Conflict { native_id: key.id.clone(), first: id });
    }
    let deliveries = crate::journal::reads::deliveries(tx.db, seq, id)?;
    Ok(Some(Accepted { id, seq, deliveries, duplicate: true, stopped: None }))
}

/// Returns the earlier result for a message that is known to be a duplicate.
pub(super) fn duplicate_of(
    tx: &Transaction<'_>,
    message: &Message,
    digest: &[u8; 32],
) -> Result<Accepted, HubError> {
    let id = || message.origin.native.id.clone();
    find_duplicate(tx, message, digest)?.ok_or_else(|| HubError::DamagedMessage { id: id() })
}

/// Returns true if an insert failed because its message id is already in use.
pub(super) fn is_id_conflict(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Binds a native id to a message; returns false if the id is already in use.
pub(crate) fn bind(tx: &Transaction<'_>, native: &NativeId, seq: i64) -> Result<bool, HubError> {
    let bound = tx
        .db
        .prepare_cached("INSERT OR IGNORE INTO native_ids (door, id, scope, seq) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![native.door.as_str(), native.id, native.scope, seq])?;
    Ok(bound > 0)
}

/// Binds an additional native id to a journaled message.
pub(crate) fn bind_native_id(
    tx: &mut Transaction<'_>,
    id: MessageId,
    native: &NativeId,
) -> Result<bool, HubError> {
    match crate::journal::reads::message(tx.db, id)? {
        Some(Stored { seq, .. }) => bind(tx, native, seq),
        None => Err(HubError::UnknownMessage { id: id.to_string() }),
    }
}

pub(super) fn unbind(tx: &Transaction<'_>, native: &NativeId, seq: i64) -> Result<(), HubError> {
    tx.db
        .prepare_cached("DELETE FROM native_ids WHERE door = ?1 AND id = ?2 AND scope = ?3 AND seq = ?4")?
        .execute(params![native.door.as_str(), native.id, native.scope, seq])?;
    Ok(())
}
