//! Submission: deduplicates, journals, plans and enqueues a message in one transaction.

mod draft;
mod duplicate;

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};
use switchboard_core::{
    Address, AgentId, AgentRecord, Delivery, DeliveryState, Directory, Hop, Message, MessageId, PlanEntry,
    ResolveError, Route, TripReason, plan,
};

pub(crate) use self::draft::Prepared;
use self::draft::Submitter;
pub use self::draft::{Draft, RelayedMessage};
pub use self::duplicate::is_idempotency_scope;
pub(crate) use self::duplicate::{bind, bind_native_id};
use self::duplicate::{
    duplicate_of, find_by_idempotency_key, find_duplicate, idempotency_key, is_id_conflict, unbind,
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

/// Note on a delivery that was read back from files after the database was lost.
pub(crate) const READ_BACK: &str = "read back from files";

/// Note on a delivery whose file the submitter is still writing.
const BEING_WRITTEN: &str = "its file is being written";

/// Result of a submission: the message is in the journal and on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The message.
    pub id: MessageId,
    /// Number of the message in the journal.
    pub seq: i64,
    /// Deliveries of the message in their current states.
    pub deliveries: Vec<Delivery>,
    /// True if the message is a duplicate of an accepted message.
    pub duplicate: bool,
    /// Breaker that stopped the message.
    pub stopped: Option<TripReason>,
}

/// Journals a message and queues its deliveries, deduplicated by native id and idempotency key.
///
/// Every refusal happens before the first row is written: see [`crate::store::writer::OnFailure::LeaveAsIs`].
pub(crate) fn submit(tx: &mut Transaction<'_>, prepared: Prepared) -> Result<Accepted, HubError> {
    let Prepared { mut message, mut digest, key, native_is_id, allow_unregistered, restored, submitter } =
        prepared;
    // The hub's name is reserved, because messages of the hub are trusted and no agent answers them. A file that merely
    // claims to be from the hub is not verified, and the link vouches for messages of another hub.
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
            // A duplicate is accepted even if its recipient was removed in the meantime.
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
            // The message id already exists, so this is the same message under another native id.
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

/// Explains why a message has no recipient; distinguishes a removed agent (tombstone) from an unknown one.
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

/// Returns the directory, extended by a reply route if the recipient needs one.
///
/// If the recipient is known only to the hub that relayed the parent message (a member of a swarm of that hub), the
/// directory gets an entry that routes the reply back through that hub.
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

/// Replaces aliases and other spellings by canonical names; returns true if anything changed.
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

/// Planned delivery, with its final state if that is already decided.
pub(crate) type PlannedDelivery = (PlanEntry, Option<(DeliveryState, String)>);

/// Builds the delivery of a message that is restored from files after the database was lost.
fn restored_delivery((agent, state): (AgentId, DeliveryState)) -> PlannedDelivery {
    let route = Route::Mailbox { agent: agent.name.clone() };
    (PlanEntry { agent, route, in_place: true }, Some((state, READ_BACK.to_owned())))
}

/// Adds the deliveries that only the relaying hub knows.
///
/// The message was already ingested from a shared folder. The file of a message to all agents lies in one channel and
/// does not name these deliveries.
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
    // A post that was not written by a hub is delivered by each hub that finds it to its own agents.
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

/// Sets the thread of a reply and its reply chain, the agents that led to it.
fn join_thread(tx: &Transaction<'_>, message: &mut Message) -> Result<(), HubError> {
    let Some(id) = message.in_reply_to else { return Ok(()) };
    let (seq, parent) = match crate::journal::reads::message(tx.db, id) {
        Ok(Some(Stored { seq, message, .. })) => (seq, message),
        Ok(None) => return Ok(()),
        // The parent is damaged, but this message is accepted and keeps its thread.
        Err(HubError::DamagedMessage { .. }) => {
            message.thread = thread_of(tx, id)?.unwrap_or(message.id);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    message.thread = parent.thread;
    // A message from the person resets the reply chain, and so does a resume by the person.
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

/// Returns true if the person wrote in the conversation after the parent of this message.
///
/// The query runs only if the reply chain is long enough to trip a breaker.
fn person_spoke_since(tx: &Transaction<'_>, parent: i64, message: &Message) -> Result<bool, HubError> {
    /// Minimum length of a reply chain that can contain a cycle that a breaker stops.
    const CIRCLE: usize = 3;
    let is_long = message.via.len() >= tx.config.loops.hops.min(CIRCLE);
    Ok(is_long && parent < breakers::last_person_message(tx, message.thread)?)
}

/// Returns the thread of a message whose row is damaged.
///
/// Returns `None` if that field cannot be read.
fn thread_of(tx: &Transaction<'_>, id: MessageId) -> Result<Option<MessageId>, HubError> {
    let thread = tx
        .db
        .prepare_cached("SELECT thread FROM messages WHERE id = ?1")?
        .query_row([id.as_bytes()], |row| Ok(row.get(0).ok().map(MessageId::from_bytes)))
        .optional()?;
    Ok(thread.flatten())
}

/// Restores a damaged row from content that matches its digest.
///
/// The message's position in the conversation is retained if it can be read, because no other source has it.
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
