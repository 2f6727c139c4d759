//! Submission: deduplicate, journal, plan and enqueue a message in one transaction.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde_json::{Map, Value};
use switchboard_core::{
    Address, AgentId, AgentRecord, Delivery, DeliveryState, Directory, Hop, Kind, Message, MessageId,
    NativeId, Origin, PlanEntry, ResolveError, Route, TripReason, plan,
};

use crate::breakers;
use crate::claims;
use crate::delivery::notice::is_notice;
use crate::delivery::outbox;
use crate::directory;
use crate::error::HubError;
use crate::journal::chain;
use crate::store::rows::{self, Stored};
use crate::store::writer::Transaction;

/// Note on a delivery from before the database was lost.
pub(crate) const READ_BACK: &str = "read back from files";

/// Note on a delivery whose file the submitter still writes.
const BEING_WRITTEN: &str = "its file is being written";

/// Message as a door submits it. The hub adds thread, reply chain and journal number.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Its id, from [`crate::Hub::next_id`] or derived from facts that its door knows.
    pub id: MessageId,
    /// The sender.
    pub from: AgentId,
    /// The recipient.
    pub to: Address,
    /// Its kind.
    pub kind: Kind,
    /// The body.
    pub body: String,
    /// The message that it replies to.
    pub in_reply_to: Option<MessageId>,
    /// Time of writing.
    pub sent_at: Timestamp,
    /// Time at which it expires.
    pub expires_at: Option<Timestamp>,
    /// Further metadata.
    pub metadata: Map<String, Value>,
    /// Its id in its protocol. The same native id again is a no-op with the same result.
    pub native: NativeId,
    /// Idempotency key of the sender: a retry with the same key is not sent twice.
    pub key: Option<String>,
    /// True if the native id is the message id in another spelling. Then the index of ids serves for both.
    pub native_is_id: bool,
    /// True if the door has verified that `from` wrote it.
    pub verified: bool,
    /// The route that it arrived by.
    pub route: Option<Route>,
    /// The exact signed bytes, if the content is signed.
    pub signed: Option<Vec<u8>>,
    /// True if an unknown local recipient may be reached through its mailbox.
    pub allow_unregistered: bool,
    /// For a message that is restored from mailbox files after the database was lost: its recipients, and the
    /// state of each delivery. No delivery is planned then.
    pub restored: Option<Vec<(AgentId, DeliveryState)>>,
}

/// Message that another hub relayed, with its place in a conversation that began elsewhere.
#[derive(Debug, Clone)]
pub struct RelayedMessage {
    /// The message.
    pub draft: Draft,
    /// First message of its conversation. If the message that it replies to is known here, that message's
    /// thread counts.
    pub thread: MessageId,
    /// Hops of the reply chain before it. The same rule applies.
    pub via: Vec<Hop>,
}

/// Result of a submission: the message is in the journal, on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The message.
    pub id: MessageId,
    /// Its number in the journal.
    pub seq: i64,
    /// Its deliveries in their current states.
    pub deliveries: Vec<Delivery>,
    /// True if it is a duplicate of an accepted message.
    pub duplicate: bool,
    /// Breaker that stopped it.
    pub stopped: Option<TripReason>,
}

/// Validated draft, ready for the writer: all work that can run before its transaction is done.
pub(crate) struct Prepared {
    message: Message,
    digest: [u8; 32],
    key: Option<String>,
    native_is_id: bool,
    allow_unregistered: bool,
    restored: Option<Vec<(AgentId, DeliveryState)>>,
    submitter: Submitter,
}

/// Submitter of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submitter {
    /// A door, on behalf of the sender.
    Door,
    /// A door, in the hub's own name.
    Hub,
    /// A door that still has to write the file. It is leased the in-place deliveries.
    FileWriter,
}

impl Prepared {
    /// Checks the size limits and computes the digest, on the submitter's thread.
    pub(crate) fn new(draft: Draft, body_limit: usize, metadata_limit: usize) -> Result<Self, HubError> {
        if draft.body.len() > body_limit {
            return Err(HubError::BodyTooLarge { size: draft.body.len(), limit: body_limit });
        }
        let size = rows::metadata_text(&draft.metadata).map_or(0, |text| text.len());
        if size > metadata_limit {
            return Err(HubError::MetadataTooLarge { size, limit: metadata_limit });
        }
        let message = Message {
            id: draft.id,
            from: draft.from,
            to: draft.to,
            kind: draft.kind,
            body: draft.body,
            in_reply_to: draft.in_reply_to,
            thread: draft.id,
            sent_at: draft.sent_at,
            expires_at: draft.expires_at,
            metadata: draft.metadata,
            origin: Origin { native: draft.native, verified: draft.verified, route: draft.route },
            via: Vec::new(),
            signed: draft.signed,
        };
        let digest = rows::digest(&message);
        let Draft { key, native_is_id, allow_unregistered, restored, .. } = draft;
        Ok(Self {
            message,
            digest,
            key,
            native_is_id,
            allow_unregistered,
            restored,
            submitter: Submitter::Door,
        })
    }

    /// Marks the message as the hub's own.
    pub(crate) fn in_hub_name(self) -> Self {
        Self { submitter: Submitter::Hub, ..self }
    }

    /// Leases in-place deliveries to the submitter, who still has to write the file.
    pub(crate) fn leased(self) -> Self {
        Self { submitter: Submitter::FileWriter, ..self }
    }

    /// Validates a relayed message of another hub.
    pub(crate) fn relayed(
        relayed: RelayedMessage,
        body_limit: usize,
        metadata_limit: usize,
    ) -> Result<Self, HubError> {
        let mut prepared = Self::new(relayed.draft, body_limit, metadata_limit)?;
        prepared.message.thread = relayed.thread;
        prepared.message.via = relayed.via;
        Ok(prepared)
    }
}

/// Journals a message and queues its deliveries.
///
/// Every refusal happens before the first row is written: see [`crate::store::writer::OnFailure::LeaveAsIs`].
pub(crate) fn submit(tx: &mut Transaction<'_>, prepared: Prepared) -> Result<Accepted, HubError> {
    let Prepared { mut message, mut digest, key, native_is_id, allow_unregistered, restored, submitter } =
        prepared;
    // Messages of the hub are trusted, and no agent answers them. A file that merely claims to be from the hub
    // is not verified, and the link vouches for messages of another hub.
    if restored.is_none()
        && submitter != Submitter::Hub
        && message.from.realm.is_none()
        && is_notice(&message)
    {
        return Err(HubError::ReservedName { name: message.from.name, reserved_for: "the hub" });
    }
    let directory = directory_with_reply_route(tx, &message)?;
    if canonicalize_names(&mut message, &directory) {
        digest = rows::digest(&message);
    }
    let key = key.map(|key| idempotency_key(&message, key));
    if let Some(key) = &key
        && let Some(first) = find_by_idempotency_key(tx, &message, key)?
    {
        return Ok(first);
    }
    let is_new = restored.is_none();
    let mut planned: Vec<_> = match restored {
        Some(restored) => restored.into_iter().map(restored_delivery).collect(),
        None => match plan(&message, &directory, allow_unregistered) {
            Ok(plan) => plan.deliveries.into_iter().map(|planned| (planned, None)).collect(),
            // A duplicate is accepted even if its recipient has been removed since.
            Err(error) => match find_duplicate(tx, &message, &digest)? {
                Some(accepted) => return Ok(accepted),
                None => return Err(explain_unresolved(tx, error)?.into()),
            },
        },
    };
    if is_new && let Err(stale) = claims::check_message(tx, &message) {
        return find_duplicate(tx, &message, &digest)?.ok_or(stale);
    }
    join_thread(tx, &mut message)?;
    let tripped = breakers::check(tx, &message, &mut planned)?;
    for (planned, decided) in &mut planned {
        if submitter == Submitter::FileWriter && planned.in_place && decided.is_none() {
            *decided = Some((DeliveryState::InFlight, BEING_WRITTEN.to_owned()));
        }
    }
    let seq = tx.next_seq()?;
    if !native_is_id && !bind(tx, &message.origin.native, seq)? {
        return duplicate_of(tx, &message, &digest);
    }
    match tx.append(seq, &message, &digest) {
        Err(error) if is_id_conflict(&error) => {
            // The same message under another native id.
            unbind(tx, &message.origin.native, seq)?;
            let first = duplicate_of(tx, &message, &digest)?;
            return add_relayed_deliveries(tx, &message, first, planned, tripped);
        }
        inserted => inserted?,
    }
    if let Some(key) = &key {
        bind(tx, key, seq)?;
    }
    let message = Arc::new(message);
    let mut deliveries = Vec::with_capacity(planned.len());
    for (number, (planned, decided)) in planned.into_iter().enumerate() {
        deliveries.push(outbox::enqueue(tx, &message, seq, number, planned, decided)?);
    }
    breakers::record_spending(tx, &message, &deliveries)?;
    let stopped = breakers::record(tx, seq, &message, tripped)?;
    Ok(Accepted { id: message.id, seq, deliveries, duplicate: false, stopped })
}

/// Explains why a message has no recipient: a removed agent is reported differently from an unknown one.
fn explain_unresolved(tx: &Transaction<'_>, error: ResolveError) -> Result<ResolveError, HubError> {
    match error {
        ResolveError::UnknownAgent { agent, near, known } => {
            Ok(match directory::retired_at(tx.db, &agent)? {
                Some(at) => ResolveError::Retired { agent, at },
                None => ResolveError::UnknownAgent { agent, near, known },
            })
        }
        other => Ok(other),
    }
}

/// Adds the reply route: if the recipient is known only to the hub that relayed the parent message (a member of
/// a swarm of that hub), the directory gets an entry that routes the reply back through that hub.
fn directory_with_reply_route(tx: &Transaction<'_>, message: &Message) -> Result<Arc<Directory>, HubError> {
    let directory = tx.directory.value.clone();
    let (Some(parent), Address::Agent(to)) = (message.in_reply_to, &message.to) else { return Ok(directory) };
    if to.realm.is_none() || directory.agent(to).is_some() {
        return Ok(directory);
    }
    let parent = match crate::journal::reads::message(tx.db, parent) {
        Ok(Some(stored)) => stored.message,
        Ok(None) | Err(HubError::DamagedMessage { .. }) => return Ok(directory),
        Err(error) => return Err(error),
    };
    let Some(route @ Route::Hub { .. }) = parent.origin.route.filter(|_| parent.from == *to) else {
        return Ok(directory);
    };
    let mut directory = Directory::clone(&directory);
    directory.put_agent(AgentRecord {
        id: parent.from,
        role: None,
        team: None,
        routes: vec![route],
        registered_at: tx.now,
    });
    Ok(Arc::new(directory))
}

/// Replaces aliases and other spellings by canonical names; returns true if that changed anything.
fn canonicalize_names(message: &mut Message, directory: &Directory) -> bool {
    let mut changed = false;
    let mut canonicalize = |agent: &mut AgentId, duplicate_of: Option<&AgentRecord>| {
        if let Some(duplicate_of) = duplicate_of
            && !duplicate_of.id.is_spelled_like(agent)
        {
            *agent = duplicate_of.id.clone();
            changed = true;
        }
    };
    let sender = directory.agent(&message.from);
    canonicalize(&mut message.from, sender);
    if let Address::Agent(agent) = &mut message.to {
        let recipient = if agent.is_human() { None } else { directory.addressee(agent) };
        canonicalize(agent, recipient);
    }
    changed
}

/// A planned delivery, and its final state if that is decided already.
pub(crate) type PlannedDelivery = (PlanEntry, Option<(DeliveryState, String)>);

/// Restores a delivery from before the database was lost.
fn restored_delivery((agent, state): (AgentId, DeliveryState)) -> PlannedDelivery {
    let route = Route::Mailbox { agent: agent.name.clone() };
    (PlanEntry { agent, route, in_place: true }, Some((state, READ_BACK.to_owned())))
}

/// Returns the earlier result for a message whose native id, or whose id, was accepted before.
fn find_duplicate(
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

/// True if this message was already ingested from a shared folder and the link now delivers the complete
/// version: a file contains less of a message than the hub that wrote it knows.
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

/// Adds the deliveries that only the relaying hub knows to a message that was already ingested from a shared
/// folder: the file of a message to all, which lies in one channel, does not name them.
fn add_relayed_deliveries(
    tx: &mut Transaction<'_>,
    relayed: &Message,
    first: Accepted,
    mut planned: Vec<PlannedDelivery>,
    tripped: breakers::Tripped,
) -> Result<Accepted, HubError> {
    planned.retain(|(planned, _)| !first.deliveries.iter().any(|made| made.agent == planned.agent));
    let is_stopped = first.deliveries.iter().any(|made| made.state == DeliveryState::Refused);
    if planned.is_empty() || is_stopped || !matches!(relayed.origin.route, Some(Route::Hub { .. })) {
        return Ok(first);
    }
    let Some(Stored { message: found, .. }) = crate::journal::reads::message(tx.db, first.id)? else {
        return Ok(first);
    };
    // A post that no hub wrote is delivered by each hub that finds it to its own agents.
    if found.origin.route == relayed.origin.route || found.origin_hub() != relayed.origin_hub() {
        return Ok(first);
    }
    let (found, Accepted { id, seq, mut deliveries, .. }) = (Arc::new(found), first);
    let made = deliveries.len();
    for (number, (planned, decided)) in planned.into_iter().enumerate() {
        deliveries.push(outbox::enqueue(tx, &found, seq, made + number, planned, decided)?);
    }
    breakers::record_spending(tx, &found, &deliveries[made..])?;
    let stopped = breakers::record(tx, seq, &found, tripped)?;
    Ok(Accepted { id, seq, deliveries, duplicate: true, stopped })
}

/// Prefix of the scope of idempotency keys.
const KEY_SCOPE: &str = "key of ";

/// True if a scope holds idempotency keys, which are not ids that other agents may know a message by.
pub fn is_idempotency_scope(scope: &str) -> bool {
    scope.starts_with(KEY_SCOPE)
}

/// Builds the native id that stores an idempotency key; no protocol and no other sender uses its scope.
fn idempotency_key(message: &Message, key: String) -> NativeId {
    NativeId { door: message.origin.native.door, scope: format!("{KEY_SCOPE}{}", message.from), id: key }
}

/// Returns the result of the message that the sender sent under the same idempotency key, if it is the same
/// message: same content and recipient. Times that each attempt adds may differ.
fn find_by_idempotency_key(
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
fn duplicate_of(tx: &Transaction<'_>, message: &Message, digest: &[u8; 32]) -> Result<Accepted, HubError> {
    let id = || message.origin.native.id.clone();
    find_duplicate(tx, message, digest)?.ok_or_else(|| HubError::DamagedMessage { id: id() })
}

/// True if an insert failed because its id is in use.
fn is_id_conflict(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Sets the thread of a reply and the chain of agents that led to it.
fn join_thread(tx: &Transaction<'_>, message: &mut Message) -> Result<(), HubError> {
    let Some(id) = message.in_reply_to else { return Ok(()) };
    let (seq, parent) = match crate::journal::reads::message(tx.db, id) {
        Ok(Some(Stored { seq, message, .. })) => (seq, message),
        Ok(None) => return Ok(()),
        // The parent is lost, but this message and its place in the thread are not.
        Err(HubError::DamagedMessage { .. }) => {
            message.thread = thread_of(tx, id)?.unwrap_or(message.id);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    message.thread = parent.thread;
    // A message from the person resets the chain, and so does a resume by the person.
    if !(parent.from.is_human() && parent.origin.verified) {
        message.via = parent.via;
        let resumed = breakers::resumed_after(tx, &breakers::thread_subject(parent.thread))?;
        if seq <= resumed || person_spoke_since(tx, seq, message)? {
            message.via.retain(|hop| matches!(hop, Hop::Hub(_)));
        }
        message.via.push(Hop::Agent(parent.from));
    }
    Ok(())
}

/// True if the person wrote in the conversation after the parent of this message. Checked only if the chain is
/// long enough to trip a breaker.
fn person_spoke_since(tx: &Transaction<'_>, parent: i64, message: &Message) -> Result<bool, HubError> {
    /// Shorter chains cannot contain a cycle that a breaker stops.
    const CIRCLE: usize = 3;
    let is_long = message.via.len() >= tx.config.loops.hops.min(CIRCLE);
    Ok(is_long && parent < breakers::last_person_message(tx, message.thread)?)
}

/// Returns the thread of a message whose row is damaged, if that field can be read.
fn thread_of(tx: &Transaction<'_>, id: MessageId) -> Result<Option<MessageId>, HubError> {
    let thread = tx
        .db
        .prepare_cached("SELECT thread FROM messages WHERE id = ?1")?
        .query_row([id.as_bytes()], |row| Ok(row.get(0).ok().map(MessageId::from_bytes)))
        .optional()?;
    Ok(thread.flatten())
}

/// Binds a native id to a message; false if the id is in use.
pub(crate) fn bind(tx: &Transaction<'_>, native: &NativeId, seq: i64) -> Result<bool, HubError> {
    let bound = tx
        .db
        .prepare_cached("INSERT OR IGNORE INTO native_ids (door, id, scope, seq) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![native.door.as_str(), native.id, native.scope, seq])?;
    Ok(bound > 0)
}

/// Binds a further native id to a journaled message.
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

fn unbind(tx: &Transaction<'_>, native: &NativeId, seq: i64) -> Result<(), HubError> {
    tx.db
        .prepare_cached("DELETE FROM native_ids WHERE door = ?1 AND id = ?2 AND scope = ?3 AND seq = ?4")?
        .execute(params![native.door.as_str(), native.id, native.scope, seq])?;
    Ok(())
}

/// Rewrites a damaged row from content that matches its digest. Its place in the conversation stays as it is if
/// it can be read; no other source has it.
pub(crate) fn restore(tx: &mut Transaction<'_>, prepared: Prepared) -> Result<bool, HubError> {
    let Prepared { message, digest, .. } = prepared;
    match crate::journal::reads::message(tx.db, message.id) {
        Ok(_) => return Ok(false),
        Err(HubError::DamagedMessage { .. }) => {}
        Err(error) => return Err(error),
    }
    let native = &message.origin.native;
    let changed = tx.db.execute(
        "UPDATE messages SET sender = ?2, recipient = ?3, kind = ?4, body = ?5, metadata = ?6, in_reply_to = ?7, \
         door = ?8, scope = ?9, native_id = ?10, signed = ?12, route = ?13, sent_at = ?14, expires_at = ?15, \
         verified = ?16 WHERE id = ?1 AND digest = ?11",
        params![
            message.id.as_bytes(),
            message.from.to_string(),
            message.to.to_string(),
            message.kind.as_str(),
            message.body,
            rows::metadata_text(&message.metadata),
            message.in_reply_to.as_ref().map(MessageId::as_bytes),
            native.door.as_str(),
            native.scope,
            native.id,
            digest,
            message.signed,
            message.origin.route.as_ref().map(rows::json),
            message.sent_at.as_microsecond(),
            message.expires_at.map(Timestamp::as_microsecond),
            message.origin.verified,
        ],
    )?;
    if changed == 0 {
        return Ok(false);
    }
    if crate::journal::reads::message_unsealed(tx.db, message.id).is_err() {
        let alone = "UPDATE messages SET thread = id, via = NULL, accepted_at = ?2 WHERE id = ?1";
        tx.db.execute(alone, params![message.id.as_bytes(), tx.now.as_microsecond()])?;
    }
    let Some(Stored { seq, accepted_at, message }) =
        crate::journal::reads::message_unsealed(tx.db, message.id)?
    else {
        return Ok(false);
    };
    let content = rows::content(&message, accepted_at, &digest);
    tx.db.execute("UPDATE messages SET seal = ?2 WHERE seq = ?1", params![seq, rows::seal(&content)])?;
    chain::note_restored(tx.db, seq, &content, tx.now)?;
    outbox::requeue_repaired(tx, seq)?;
    Ok(true)
}

#[cfg(test)]
#[path = "submit_tests.rs"]
mod tests;
