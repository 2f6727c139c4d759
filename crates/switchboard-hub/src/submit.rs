//! The way in: journal first, then plan, then the outbox, all in one transaction.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde_json::{Map, Value};
use switchboard_core::{
    Address, AgentId, AgentRecord, Delivery, DeliveryState, Directory, Hop, Kind, Message, MessageId,
    NativeId, Origin, Planned, ResolveError, Route, Stop, plan,
};

use crate::breakers;
use crate::claims;
use crate::directory;
use crate::error::HubError;
use crate::notice::is_notice;
use crate::outbox;
use crate::store::chain;
use crate::store::rows::{self, Stored};
use crate::store::writer::Work;

/// The note on a delivery that was made before the database was lost.
pub(crate) const READ_BACK: &str = "read back from files";

/// The note on a delivery whose file the submitter is writing.
const BEING_WRITTEN: &str = "its file is being written";

/// A message as its door hands it in. The hub adds thread, chain and place in the journal.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Its identity, from [`crate::Hub::next_id`] or derived from what its door knows of it.
    pub id: MessageId,
    /// Who wrote it.
    pub from: AgentId,
    /// Whom it is for.
    pub to: Address,
    /// What it is for.
    pub kind: Kind,
    /// The text.
    pub body: String,
    /// The message it answers.
    pub in_reply_to: Option<MessageId>,
    /// When it was written.
    pub sent_at: Timestamp,
    /// When it stops being of use.
    pub expires_at: Option<Timestamp>,
    /// Whatever else it carries.
    pub metadata: Map<String, Value>,
    /// What its protocol calls it. The same native id again is a no-op with the same answer.
    pub native: NativeId,
    /// The sender's own word for it, under which it may be sent again without being sent twice.
    pub key: Option<String>,
    /// Whether the native id is the id in another spelling. Then the index of ids serves for both.
    pub native_is_id: bool,
    /// Whether the door could establish that `from` really wrote it.
    pub verified: bool,
    /// The route it came in by.
    pub route: Option<Route>,
    /// The exact bytes that were signed, where the content is signed.
    pub signed: Option<Vec<u8>>,
    /// Whether an unknown local recipient may be reached through its mailbox.
    pub allow_unregistered: bool,
    /// For a message that is read back from mailbox files after the database was lost: who had it, and
    /// how far it had got with each. Nothing is planned for it then.
    pub restored: Option<Vec<(AgentId, DeliveryState)>>,
}

/// A message that another hub passed on, with its place in a conversation that began elsewhere.
#[derive(Debug, Clone)]
pub struct RelayedMessage {
    /// The message.
    pub draft: Draft,
    /// The first message of its conversation. Where the message that it answers is known here, that one counts.
    pub thread: MessageId,
    /// The stations of the reply chain before it, likewise.
    pub via: Vec<Hop>,
}

/// The answer to a submitted message: it is in the journal, on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The message.
    pub id: MessageId,
    /// Its place in the journal.
    pub seq: i64,
    /// What was planned for it, as far as it has got.
    pub deliveries: Vec<Delivery>,
    /// Whether it had been accepted before.
    pub duplicate: bool,
    /// Why it goes no further, where a rule against storms stopped it.
    pub stopped: Option<Stop>,
}

/// A draft, ready for the writer: what can be done before its turn has been done.
pub(crate) struct Prepared {
    message: Message,
    digest: [u8; 32],
    key: Option<String>,
    native_is_id: bool,
    allow_unregistered: bool,
    restored: Option<Vec<(AgentId, DeliveryState)>>,
    submitter: Submitter,
}

/// Who hands a message in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submitter {
    /// A door, for the sender.
    Door,
    /// A door, in the hub's own name.
    Hub,
    /// A door that still has to write the file. It is leased the deliveries that the file makes.
    FileWriter,
}

impl Prepared {
    /// Checks the limits and computes the checksum, on the submitter's time.
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

    /// What a door has to say in the hub's own name.
    pub(crate) fn in_the_hubs_name(self) -> Self {
        Self { submitter: Submitter::Hub, ..self }
    }

    /// Leases the deliveries that are made in place to the submitter, who still has to write the file.
    pub(crate) fn leased(self) -> Self {
        Self { submitter: Submitter::FileWriter, ..self }
    }

    /// The same for a message of another hub.
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
/// Everything that can be refused is refused before the first row is written: see [`crate::store::writer::Undo::Nothing`].
pub(crate) fn submit(tx: &mut Work<'_>, prepared: Prepared) -> Result<Accepted, HubError> {
    let Prepared { mut message, mut digest, key, native_is_id, allow_unregistered, restored, submitter } =
        prepared;
    // What the hub says is believed, and answered by nobody. A file that only claims to be the hub's is not verified, and
    // for another hub's word the link stands.
    if restored.is_none()
        && submitter != Submitter::Hub
        && message.from.realm.is_none()
        && is_notice(&message)
    {
        return Err(HubError::ReservedName { name: message.from.name, reserved_for: "the hub" });
    }
    let directory = with_way_back(tx, &message)?;
    if use_known_names(&mut message, &directory) {
        digest = rows::digest(&message);
    }
    let key = key.map(|key| keyed(&message, key));
    if let Some(key) = &key
        && let Some(first) = sent_before(tx, &message, key)?
    {
        return Ok(first);
    }
    let is_new = restored.is_none();
    let mut planned: Vec<_> = match restored {
        Some(had) => had.into_iter().map(read_back).collect(),
        None => match plan(&message, &directory, allow_unregistered) {
            Ok(plan) => plan.deliveries.into_iter().map(|planned| (planned, None)).collect(),
            // Accepted once is accepted, also when its recipient has gone since.
            Err(error) => match already_there(tx, &message, &digest)? {
                Some(accepted) => return Ok(accepted),
                None => return Err(nobody(tx, error)?.into()),
            },
        },
    };
    if is_new && let Err(stale) = claims::check_message(tx, &message) {
        return already_there(tx, &message, &digest)?.ok_or(stale);
    }
    join_thread(tx, &mut message)?;
    let stops = breakers::check(tx, &message, &mut planned)?;
    for (planned, decided) in &mut planned {
        if submitter == Submitter::FileWriter && planned.in_place && decided.is_none() {
            *decided = Some((DeliveryState::InFlight, BEING_WRITTEN.to_owned()));
        }
    }
    let seq = tx.next_seq()?;
    if !native_is_id && !bind(tx, &message.origin.native, seq)? {
        return known(tx, &message, &digest);
    }
    match tx.append(seq, &message, &digest) {
        Err(error) if is_taken(&error) => {
            // The same message under another native id.
            unbind(tx, &message.origin.native, seq)?;
            let first = known(tx, &message, &digest)?;
            return complete(tx, &message, first, planned, stops);
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
    breakers::spend(tx, &message, &deliveries)?;
    let stopped = breakers::note(tx, seq, &message, stops)?;
    Ok(Accepted { id: message.id, seq, deliveries, duplicate: false, stopped })
}

/// Why a message has no recipient. That an agent was there and has left is something else than that it never was.
fn nobody(tx: &Work<'_>, error: ResolveError) -> Result<ResolveError, HubError> {
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

/// The directory, and in it whoever wrote the message that this one answers, where only the hub that brought it knows
/// them: a member of a swarm that another hub is in. The answer goes back by that hub.
fn with_way_back(tx: &Work<'_>, message: &Message) -> Result<Arc<Directory>, HubError> {
    let directory = tx.directory.value.clone();
    let (Some(parent), Address::Agent(to)) = (message.in_reply_to, &message.to) else { return Ok(directory) };
    if to.realm.is_none() || directory.agent(to).is_some() {
        return Ok(directory);
    }
    let parent = match crate::reads::message(tx.db, parent) {
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

/// Puts the names that the directory knows in place of aliases and other spellings; says whether that
/// changed anything.
fn use_known_names(message: &mut Message, directory: &Directory) -> bool {
    let mut changed = false;
    let mut know = |agent: &mut AgentId, known: Option<&AgentRecord>| {
        if let Some(known) = known
            && !known.id.is_spelled_like(agent)
        {
            *agent = known.id.clone();
            changed = true;
        }
    };
    let sender = directory.agent(&message.from);
    know(&mut message.from, sender);
    if let Address::Agent(agent) = &mut message.to {
        let recipient = if agent.is_human() { None } else { directory.addressee(agent) };
        know(agent, recipient);
    }
    changed
}

/// A planned delivery, and how it ended, where that is known from the start.
pub(crate) type Decided = (Planned, Option<(DeliveryState, String)>);

/// A delivery that was made before the database was lost.
fn read_back((agent, state): (AgentId, DeliveryState)) -> Decided {
    let route = Route::Mailbox { agent: agent.name.clone() };
    (Planned { agent, route, in_place: true }, Some((state, READ_BACK.to_owned())))
}

/// The earlier answer to a message whose native id, or whose id, was accepted before.
fn already_there(tx: &Work<'_>, message: &Message, digest: &[u8; 32]) -> Result<Option<Accepted>, HubError> {
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
    if &first != digest && !lay_in_a_folder(tx, id, message)? {
        return Err(HubError::Conflict { native_id: native.id.clone(), first: id });
    }
    let deliveries = crate::reads::deliveries(tx.db, seq, id)?;
    Ok(Some(Accepted { id, seq, deliveries, duplicate: true, stopped: None }))
}

/// Whether the message of this id is what a link brings now, found before in a folder that hubs share: a file says less of
/// its message than the hub that wrote it knows.
fn lay_in_a_folder(tx: &Work<'_>, id: MessageId, message: &Message) -> Result<bool, HubError> {
    if id != message.id || !matches!(message.origin.route, Some(Route::Hub { .. })) {
        return Ok(false);
    }
    let Some(Stored { message: first, .. }) = crate::reads::message(tx.db, id)? else { return Ok(false) };
    Ok(matches!(first.origin.route, Some(Route::Channel { .. }))
        && first.from.name == message.from.name
        && first.kind == message.kind
        && first.body == message.body)
}

/// Delivers what was found in a folder, and the hub that wrote it brings now, to those whom only that hub knew it to be for:
/// the file of a message to all, which stands in one channel, does not say so.
fn complete(
    tx: &mut Work<'_>,
    brought: &Message,
    first: Accepted,
    mut planned: Vec<Decided>,
    stops: breakers::Stops,
) -> Result<Accepted, HubError> {
    planned.retain(|(planned, _)| !first.deliveries.iter().any(|made| made.agent == planned.agent));
    let is_stopped = first.deliveries.iter().any(|made| made.state == DeliveryState::Refused);
    if planned.is_empty() || is_stopped || !matches!(brought.origin.route, Some(Route::Hub { .. })) {
        return Ok(first);
    }
    let Some(Stored { message: found, .. }) = crate::reads::message(tx.db, first.id)? else {
        return Ok(first);
    };
    // What no hub wrote, each that finds it delivers to its own.
    if found.origin.route == brought.origin.route || found.other_hub() != brought.other_hub() {
        return Ok(first);
    }
    let (found, Accepted { id, seq, mut deliveries, .. }) = (Arc::new(found), first);
    let made = deliveries.len();
    for (number, (planned, decided)) in planned.into_iter().enumerate() {
        deliveries.push(outbox::enqueue(tx, &found, seq, made + number, planned, decided)?);
    }
    breakers::spend(tx, &found, &deliveries[made..])?;
    let stopped = breakers::note(tx, seq, &found, stops)?;
    Ok(Accepted { id, seq, deliveries, duplicate: true, stopped })
}

/// How the scope of senders' own words begins.
const KEY_SCOPE: &str = "key of ";

/// Whether ids of this scope are senders' own words, and no names that others may know a message by.
pub fn is_idempotency_scope(scope: &str) -> bool {
    scope.starts_with(KEY_SCOPE)
}

/// A sender's own word for a message, as an id that no protocol and no other sender uses.
fn keyed(message: &Message, key: String) -> NativeId {
    NativeId { door: message.origin.native.door, scope: format!("{KEY_SCOPE}{}", message.from), id: key }
}

/// The answer to the message that the sender sent under the same word, if it is the same message: what
/// its sender wrote, to whom. Times that the sending adds may differ.
fn sent_before(tx: &Work<'_>, message: &Message, key: &NativeId) -> Result<Option<Accepted>, HubError> {
    let found: Option<[u8; 16]> = tx
        .db
        .prepare_cached(
            "SELECT id FROM messages WHERE seq = (SELECT seq FROM native_ids WHERE door = ?1 AND id = ?2 AND scope = ?3)",
        )?
        .query_row(params![key.door.as_str(), key.id, key.scope], |row| row.get(0))
        .optional()?;
    let Some(id) = found.map(MessageId::from_bytes) else { return Ok(None) };
    let Some(Stored { seq, message: first, .. }) = crate::reads::message(tx.db, id)? else { return Ok(None) };
    let same = first.to == message.to
        && first.kind == message.kind
        && first.body == message.body
        && first.in_reply_to == message.in_reply_to;
    if !same {
        return Err(HubError::Conflict { native_id: key.id.clone(), first: id });
    }
    let deliveries = crate::reads::deliveries(tx.db, seq, id)?;
    Ok(Some(Accepted { id, seq, deliveries, duplicate: true, stopped: None }))
}

/// The earlier answer to a message that is known to have one.
fn known(tx: &Work<'_>, message: &Message, digest: &[u8; 32]) -> Result<Accepted, HubError> {
    let id = || message.origin.native.id.clone();
    already_there(tx, message, digest)?.ok_or_else(|| HubError::DamagedMessage { id: id() })
}

/// Whether a row was refused because its id is in use.
fn is_taken(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Puts a reply into its conversation, and notes the chain of agents that led to it.
fn join_thread(tx: &Work<'_>, message: &mut Message) -> Result<(), HubError> {
    let Some(id) = message.in_reply_to else { return Ok(()) };
    let (seq, parent) = match crate::reads::message(tx.db, id) {
        Ok(Some(Stored { seq, message, .. })) => (seq, message),
        Ok(None) => return Ok(()),
        // The parent is lost, but not this message, nor its place beside the others.
        Err(HubError::DamagedMessage { .. }) => {
            message.thread = thread_of(tx, id)?.unwrap_or(message.id);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    message.thread = parent.thread;
    // What the person said starts the chain anew, and so does that the person let it go on.
    if !(parent.from.is_human() && parent.origin.verified) {
        message.via = parent.via;
        let resumed = breakers::resumed(tx, &breakers::thread_subject(parent.thread))?;
        if seq <= resumed || is_before_a_word(tx, seq, message)? {
            message.via.retain(|hop| matches!(hop, Hop::Hub(_)));
        }
        message.via.push(Hop::Agent(parent.from));
    }
    Ok(())
}

/// Whether the person has spoken in the conversation since the message that this one answers. Looked for only where the
/// chain is long enough to be stopped.
fn is_before_a_word(tx: &Work<'_>, parent: i64, message: &Message) -> Result<bool, HubError> {
    /// Fewer agents than that make no circle that is stopped.
    const CIRCLE: usize = 3;
    let is_long = message.via.len() >= tx.config.loops.hops.min(CIRCLE);
    Ok(is_long && parent < breakers::persons_word(tx, message.thread)?)
}

/// The conversation of a message whose row is damaged, where that much of it can be read.
fn thread_of(tx: &Work<'_>, id: MessageId) -> Result<Option<MessageId>, HubError> {
    let thread = tx
        .db
        .prepare_cached("SELECT thread FROM messages WHERE id = ?1")?
        .query_row([id.as_bytes()], |row| Ok(row.get(0).ok().map(MessageId::from_bytes)))
        .optional()?;
    Ok(thread.flatten())
}

/// Records what a protocol calls a message; false where the id is in use.
pub(crate) fn bind(tx: &Work<'_>, native: &NativeId, seq: i64) -> Result<bool, HubError> {
    let bound = tx
        .db
        .prepare_cached("INSERT OR IGNORE INTO native_ids (door, id, scope, seq) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![native.door.as_str(), native.id, native.scope, seq])?;
    Ok(bound > 0)
}

/// Records a further id of a message that is in the journal.
pub(crate) fn bind_native_id(tx: &mut Work<'_>, id: MessageId, native: &NativeId) -> Result<bool, HubError> {
    match crate::reads::message(tx.db, id)? {
        Some(Stored { seq, .. }) => bind(tx, native, seq),
        None => Err(HubError::UnknownMessage { id: id.to_string() }),
    }
}

fn unbind(tx: &Work<'_>, native: &NativeId, seq: i64) -> Result<(), HubError> {
    tx.db
        .prepare_cached("DELETE FROM native_ids WHERE door = ?1 AND id = ?2 AND scope = ?3 AND seq = ?4")?
        .execute(params![native.door.as_str(), native.id, native.scope, seq])?;
    Ok(())
}

/// Writes a damaged row anew from content that matches its checksum. The place in its conversation stays
/// as it is where it can be read; nobody but the row knew it.
pub(crate) fn restore(tx: &mut Work<'_>, prepared: Prepared) -> Result<bool, HubError> {
    let Prepared { message, digest, .. } = prepared;
    match crate::reads::message(tx.db, message.id) {
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
    if crate::reads::unsealed(tx.db, message.id).is_err() {
        let alone = "UPDATE messages SET thread = id, via = NULL, accepted_at = ?2 WHERE id = ?1";
        tx.db.execute(alone, params![message.id.as_bytes(), tx.now.as_microsecond()])?;
    }
    let Some(Stored { seq, accepted_at, message }) = crate::reads::unsealed(tx.db, message.id)? else {
        return Ok(false);
    };
    let content = rows::content(&message, accepted_at, &digest);
    tx.db.execute("UPDATE messages SET seal = ?2 WHERE seq = ?1", params![seq, rows::seal(&content)])?;
    chain::note_restored(tx.db, seq, &content, tx.now)?;
    outbox::take_back(tx, seq)?;
    Ok(true)
}

#[cfg(test)]
#[path = "submit_tests.rs"]
mod tests;
