//! Relay of messages to other hubs: the outgoing part of the journal, and the link's progress.
//!
//! The journal is the queue: the link reads it from a cursor, and no door queues these deliveries. Their state advances
//! with the link's reports: relayed, then accepted or refused by the other hub.

use jiff::Timestamp;
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{Connection, OptionalExtension, Rows, Statement, params};
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId, Name, POSTED_IN, Route};

use crate::delivery::outbox::{put_state, report_refused_forward};
use crate::error::HubError;
use crate::events::HubEvent;
use crate::journal::maintenance;
use crate::journal::reads;
use crate::store::rows::{self, DELIVERY_COLUMNS, MESSAGE_COLUMNS, SPREAD, Stored};
use crate::store::writer::Transaction;

/// Maximum bytes of message text in one batch, to bound memory. The message that exceeds the limit is the last of its
/// batch.
const BYTES: usize = 4 << 20;

/// Topic of the notes that hold the state of the link.
pub const LINK: &str = "link";

/// Key of the note with this hub's name.
const NAME: &str = "hub";

/// Batch of outgoing messages for other hubs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingBatch {
    /// The messages, in order.
    pub messages: Vec<OutgoingRelay>,
    /// Cursor for the next batch: the number up to which the journal was scanned.
    pub until: i64,
    /// True if more messages may follow.
    pub more: bool,
}

/// Outgoing message for other hubs, with its deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingRelay {
    /// The message.
    pub stored: Stored,
    /// All deliveries of the message, including those within this hub.
    pub deliveries: Vec<Delivery>,
}

/// Receipt of another hub for a relayed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteReceipt {
    /// The message.
    pub id: MessageId,
    /// The recipient, as an agent of that hub.
    pub agent: AgentId,
    /// The status.
    pub status: ReceiptStatus,
}

/// Status of a message in another hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiptStatus {
    /// The message is in the other hub's journal.
    Accepted,
    /// The other hub refused the message.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The reader has seen the message.
    Seen,
    /// The reader has acknowledged the message.
    Acknowledged {
        /// The reader's note.
        note: Option<String>,
    },
}

impl ReceiptStatus {
    /// Returns the state and note to which this status advances a delivery.
    ///
    /// Returns `None` if nothing changes.
    fn advance(&self, from: DeliveryState) -> Option<(DeliveryState, Option<&String>)> {
        match self {
            Self::Accepted => from.is_pending().then_some((DeliveryState::Delivered, None)),
            Self::Refused { reason } => from.is_pending().then_some((DeliveryState::Refused, Some(reason))),
            Self::Seen => {
                (from.is_pending() || from == DeliveryState::Delivered).then_some((DeliveryState::Seen, None))
            }
            Self::Acknowledged { note } => {
                (!from.is_final()).then_some((DeliveryState::Acknowledged, note.as_ref()))
            }
        }
    }
}

/// Relayed channel posts in a part of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedPosts {
    /// The posts, in order.
    pub posts: Vec<Stored>,
    /// Cursor for the next call: the number up to which the journal was scanned.
    pub until: i64,
    /// True if more posts may follow.
    pub more: bool,
}

/// Returns outgoing messages after a cursor.
///
/// These are messages of this hub for a group, a channel, or an agent of another hub. A notice about a relayed message
/// has the door of that message, but no route. Scans at most `limit` journal numbers.
pub(crate) fn outgoing(db: &Connection, after: i64, limit: i64) -> Result<OutgoingBatch, HubError> {
    let newest: i64 = db.query_row("SELECT coalesce(max(seq), 0) FROM messages", [], |row| row.get(0))?;
    let until = newest.min(after.saturating_add(limit)).max(after);
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.seq > ?1 AND m.seq <= ?2 AND (m.door <> 'nats' OR m.route IS NULL) \
         AND (m.door = 'channels' OR m.recipient = 'all' OR m.recipient LIKE '#%' OR m.recipient LIKE 'team:%' \
         OR EXISTS (SELECT 1 FROM deliveries d WHERE d.id >= m.seq * {SPREAD} AND d.id < (m.seq + 1) * {SPREAD} \
         AND d.door = 'nats')) ORDER BY m.seq"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([after, until])?;
    let mut all = reads::deliveries_statement(db)?;
    let mut cursor = DeliveryCursor::new(&mut all, after, until)?;
    let (mut messages, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let read = Stored::read(row).and_then(|stored| {
            let deliveries = cursor.deliveries_of(stored.seq, stored.message.id)?;
            Ok(OutgoingRelay { stored, deliveries })
        });
        match read {
            // Skipped: this hub found the message in a shared folder, and the hub that wrote it has relayed it.
            Ok(relay) if relay.stored.message.is_from_other_hub() => {}
            Ok(relay) => {
                bytes += relay.stored.message.body.len();
                let seq = relay.stored.seq;
                messages.push(relay);
                if bytes > BYTES {
                    return Ok(OutgoingBatch { messages, until: seq, more: true });
                }
            }
            Err(HubError::DamagedMessage { id }) => {
                tracing::warn!(%id, "a damaged message is not relayed; `switchboard doctor` says more");
            }
            Err(other) => return Err(other),
        }
    }
    Ok(OutgoingBatch { messages, until, more: until < newest })
}

/// Returns relayed channel posts after a cursor.
///
/// They were posted in a channel of their hub without being addressed to that channel. Scans at most `limit` journal
/// numbers.
pub(crate) fn relayed_posts(db: &Connection, after: i64, limit: i64) -> Result<RelayedPosts, HubError> {
    let newest: i64 = db.query_row("SELECT coalesce(max(seq), 0) FROM messages", [], |row| row.get(0))?;
    let until = newest.min(after.saturating_add(limit)).max(after);
    // Most messages do not have this key, and a text search for it costs less than parsing all metadata.
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.seq > ?1 AND m.seq <= ?2 AND m.door = 'nats' \
         AND m.metadata LIKE '%\"{POSTED_IN}\"%' ORDER BY m.seq"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([after, until])?;
    let mut posts = Vec::new();
    while let Some(row) = rows.next()? {
        match Stored::read(row) {
            Ok(stored) => posts.push(stored),
            // Skipped here; `doctor` reports damaged messages.
            Err(HubError::DamagedMessage { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(RelayedPosts { posts, until, more: until < newest })
}

/// Cursor over the deliveries of a part of the journal, advanced along with the messages.
///
/// Messages and deliveries are both sorted by number, and a step of the cursor costs less than a query per message.
struct DeliveryCursor<'s> {
    rows: Rows<'s>,
    /// Number of the next delivery.
    next: Option<i64>,
}

impl<'s> DeliveryCursor<'s> {
    /// Opens the cursor on the deliveries of messages numbered above `after`, up to `until`.
    fn new(statement: &'s mut Statement<'_>, after: i64, until: i64) -> Result<Self, HubError> {
        let ([first, _], [_, end]) = (rows::delivery_ids(after.saturating_add(1)), rows::delivery_ids(until));
        let mut cursor = Self { rows: statement.query([first, end])?, next: None };
        cursor.step()?;
        Ok(cursor)
    }

    fn step(&mut self) -> Result<(), HubError> {
        self.next = self.rows.next()?.map(|row| row.get(0)).transpose()?;
        Ok(())
    }

    /// Returns the deliveries of a message. Messages have to be requested in ascending order.
    fn deliveries_of(&mut self, seq: i64, id: MessageId) -> Result<Vec<Delivery>, HubError> {
        let [first, end] = rows::delivery_ids(seq);
        while self.next.is_some_and(|next| next < first) {
            self.step()?;
        }
        let mut found = Vec::new();
        while self.next.is_some_and(|next| next < end) {
            if let Some(row) = self.rows.get() {
                found.push(rows::delivery(row, 0, id)?);
            }
            self.step()?;
        }
        Ok(found)
    }
}

/// Returns this hub's name among the linked hubs, or `None` if it was never linked.
pub(crate) fn own_name(db: &Connection) -> Result<Option<Name>, HubError> {
    let notes = maintenance::notes(db, Door::Nats, LINK)?;
    Ok(notes.iter().find(|(key, _)| key == NAME).and_then(|(_, name)| Name::parse(name).ok()))
}

/// Sets this hub's name among the linked hubs.
pub(crate) fn set_own_name(tx: &mut Transaction<'_>, name: &Name) -> Result<(), HubError> {
    maintenance::put_note(tx, Door::Nats, LINK, NAME, Some(name.as_str()))
}

/// Records how far the journal has been relayed, and marks deliveries as in flight.
pub(crate) fn mark_relayed(
    tx: &mut Transaction<'_>,
    key: &str,
    cursor: &str,
    deliveries: Vec<Delivery>,
) -> Result<(), HubError> {
    for mut delivery in deliveries {
        let moved = tx
            .db
            .prepare_cached(
                "UPDATE deliveries SET state = 1, attempts = attempts + 1, \
                 in_flight_at = coalesce(in_flight_at, ?2) WHERE id = ?1 AND state = 0",
            )?
            .execute(params![delivery.id.0, tx.now.as_microsecond()])?;
        if moved > 0 {
            delivery.state = DeliveryState::InFlight;
            delivery.milestones.in_flight.get_or_insert(tx.now);
            tx.post_commit.events.push(HubEvent::Delivery(Box::new(delivery)));
        }
    }
    put_cursor(tx, key, cursor)
}

/// Writes a cursor of a link.
pub(crate) fn put_cursor(tx: &mut Transaction<'_>, key: &str, cursor: &str) -> Result<(), HubError> {
    maintenance::put_note(tx, Door::Nats, LINK, key, Some(cursor))
}

/// Applies receipts of other hubs; returns the deliveries that changed.
pub(crate) fn apply_receipts(
    tx: &mut Transaction<'_>,
    receipts: Vec<RemoteReceipt>,
) -> Result<Vec<Delivery>, HubError> {
    let mut moved = Vec::new();
    for RemoteReceipt { id, agent, status } in receipts {
        let seq: Option<i64> = tx
            .db
            .prepare_cached("SELECT seq FROM messages WHERE id = ?1")?
            .query_row([id.as_bytes()], |row| row.get(0))
            .optional()?;
        let Some(seq) = seq else { continue };
        for mut delivery in reads::deliveries(tx.db, seq, id)? {
            // The recipient is matched by route, because a hub may relay for agents of another hub.
            let is_recipient = delivery.agent.name == agent.name
                && matches!(&delivery.route, Route::Hub { hub } if Some(hub) == agent.realm.as_ref());
            let Some((state, note)) = status.advance(delivery.state).filter(|_| is_recipient) else {
                continue;
            };
            if let ReceiptStatus::Refused { reason } = &status {
                report_refused_forward(tx, &delivery, reason)?;
            } else if delivery.state.is_pending() && state != DeliveryState::Delivered {
                // A reader that has seen the message has received it, even if the receipt for that is still in transit.
                put_state(tx, &mut delivery, DeliveryState::Delivered, None)?;
            }
            put_state(tx, &mut delivery, state, note.cloned())?;
            moved.push(delivery);
        }
    }
    Ok(moved)
}

/// Expires at most `most` deliveries to other hubs that were queued before a moment.
pub(crate) fn expire_remote_deliveries(
    tx: &mut Transaction<'_>,
    before: Timestamp,
    reason: &str,
    most: usize,
) -> Result<Vec<Delivery>, HubError> {
    let sql = format!(
        "SELECT m.id, {DELIVERY_COLUMNS} FROM deliveries d JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE d.door = 'nats' AND (d.state < 2 OR d.state = 6) AND d.queued_at < ?1 LIMIT ?2"
    );
    let mut overdue = Vec::new();
    {
        let mut statement = tx.db.prepare_cached(&sql)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![before.as_microsecond(), most])?;
        while let Some(row) = rows.next()? {
            overdue.push(rows::delivery(row, 1, MessageId::from_bytes(row.get(0)?))?);
        }
    }
    for delivery in &mut overdue {
        put_state(tx, delivery, DeliveryState::Expired, Some(reason.to_owned()))?;
    }
    Ok(overdue)
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
