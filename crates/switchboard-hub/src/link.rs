//! What a link to other hubs stands on: the part of the journal that concerns them, and how far it got.
//!
//! The journal is the queue: a link reads it from a cursor, and its deliveries wait in no door. They are moved
//! on by what is known of them: passed on, then taken or refused by the other hub.

use jiff::Timestamp;
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{Connection, OptionalExtension, Rows, Statement, params};
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId, Name, POSTED_IN, Route};

use crate::error::HubError;
use crate::events::HubEvent;
use crate::maintenance;
use crate::outbox::{put_state, tell_returned};
use crate::reads;
use crate::store::rows::{self, DELIVERY_COLUMNS, MESSAGE_COLUMNS, SPREAD, Stored};
use crate::store::writer::Work;

/// Most bytes of text in one part, so that long messages do not add up; the message that exceeds it is the last.
const BYTES: usize = 4 << 20;

/// Under this topic the hub's notes have what a link has to know again.
pub const LINK: &str = "link";

/// The key there of what this hub is called.
const NAME: &str = "hub";

/// A part of the journal, as far as it concerns other hubs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingBatch {
    /// The messages, in order.
    pub messages: Vec<OutgoingRelay>,
    /// How far the journal has been looked at: the next cursor.
    pub until: i64,
    /// Whether there is more after that.
    pub more: bool,
}

/// A message for other hubs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingRelay {
    /// The message.
    pub stored: Stored,
    /// All of its deliveries, also those within this hub.
    pub deliveries: Vec<Delivery>,
}

/// What another hub says of a message that was passed on to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteReceipt {
    /// The message.
    pub id: MessageId,
    /// For whom, as an agent of that hub.
    pub agent: AgentId,
    /// What it says.
    pub status: ReceiptStatus,
}

/// What became of a message in another hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiptStatus {
    /// Its journal has it.
    Accepted,
    /// It does not take it.
    Refused {
        /// Why.
        reason: String,
    },
    /// Its reader was shown it.
    Seen,
    /// Its reader is done with it.
    Acknowledged {
        /// What the reader said about that.
        note: Option<String>,
    },
}

impl ReceiptStatus {
    /// The state that it brings a delivery to, with its note; nothing where it is no news.
    fn moves(&self, from: DeliveryState) -> Option<(DeliveryState, Option<&String>)> {
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

/// Posts that a link brought, in a part of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedPosts {
    /// The posts, in order.
    pub posts: Vec<Stored>,
    /// How far the journal has been looked at: the next cursor.
    pub until: i64,
    /// Whether there is more after that.
    pub more: bool,
}

/// The messages after a cursor that were written in this hub to a group, in a channel, or to an agent of another hub. What
/// the hub itself says of a message that a link brought has the door of that message, but came by no route.
///
/// Looks at `limit` numbers of the journal at most.
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
    let mut along = Along::new(&mut all, after, until)?;
    let (mut messages, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let read = Stored::read(row).and_then(|stored| {
            let deliveries = along.of(stored.seq, stored.message.id)?;
            Ok(OutgoingRelay { stored, deliveries })
        });
        match read {
            // It lay in a folder that hubs share, and the one that wrote it has passed it on.
            Ok(passage) if passage.stored.message.is_of_another_hub() => {}
            Ok(passage) => {
                bytes += passage.stored.message.body.len();
                let seq = passage.stored.seq;
                messages.push(passage);
                if bytes > BYTES {
                    return Ok(OutgoingBatch { messages, until: seq, more: true });
                }
            }
            Err(HubError::DamagedMessage { id }) => {
                tracing::warn!(%id, "a damaged message is not passed on; `switchboard doctor` says more");
            }
            Err(other) => return Err(other),
        }
    }
    Ok(OutgoingBatch { messages, until, more: until < newest })
}

/// The messages after a cursor that a link brought and that were posted in a channel where they come from, without being
/// written to it. Looks at `limit` numbers of the journal at most.
pub(crate) fn relayed_posts(db: &Connection, after: i64, limit: i64) -> Result<RelayedPosts, HubError> {
    let newest: i64 = db.query_row("SELECT coalesce(max(seq), 0) FROM messages", [], |row| row.get(0))?;
    let until = newest.min(after.saturating_add(limit)).max(after);
    // Most messages have no such key, and to look for it in the text costs less than to read them all.
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
            // `doctor` tells of it.
            Err(HubError::DamagedMessage { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(RelayedPosts { posts, until, more: until < newest })
}

/// The deliveries of a part of the journal, read along with its messages: both are in the order of their numbers, and to
/// step from one to the next costs less than to look for each.
struct Along<'s> {
    rows: Rows<'s>,
    /// The number of the one that comes next.
    next: Option<i64>,
}

impl<'s> Along<'s> {
    /// Those of the messages after one number up to another.
    fn new(statement: &'s mut Statement<'_>, after: i64, until: i64) -> Result<Self, HubError> {
        let ([first, _], [_, end]) = (rows::delivery_ids(after.saturating_add(1)), rows::delivery_ids(until));
        let mut along = Self { rows: statement.query([first, end])?, next: None };
        along.step()?;
        Ok(along)
    }

    fn step(&mut self) -> Result<(), HubError> {
        self.next = self.rows.next()?.map(|row| row.get(0)).transpose()?;
        Ok(())
    }

    /// Those of a message, which has to come after the ones that were asked for before.
    fn of(&mut self, seq: i64, id: MessageId) -> Result<Vec<Delivery>, HubError> {
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

/// What this hub is called among the others, where it has been linked.
pub(crate) fn own_name(db: &Connection) -> Result<Option<Name>, HubError> {
    let notes = maintenance::notes(db, Door::Nats, LINK)?;
    Ok(notes.iter().find(|(key, _)| key == NAME).and_then(|(_, name)| Name::parse(name).ok()))
}

/// Notes what this hub is called from now on.
pub(crate) fn set_own_name(tx: &mut Work<'_>, name: &Name) -> Result<(), HubError> {
    maintenance::put_note(tx, Door::Nats, LINK, NAME, Some(name.as_str()))
}

/// Notes how far the journal has been passed on, and that these deliveries are on their way.
pub(crate) fn mark_relayed(
    tx: &mut Work<'_>,
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
            tx.after.events.push(HubEvent::Delivery(Box::new(delivery)));
        }
    }
    put_cursor(tx, key, cursor)
}

/// Notes how far a link has got.
pub(crate) fn put_cursor(tx: &mut Work<'_>, key: &str, cursor: &str) -> Result<(), HubError> {
    maintenance::put_note(tx, Door::Nats, LINK, key, Some(cursor))
}

/// Notes what other hubs said; returns the deliveries for which that is news.
pub(crate) fn apply_receipts(
    tx: &mut Work<'_>,
    verdicts: Vec<RemoteReceipt>,
) -> Result<Vec<Delivery>, HubError> {
    let mut moved = Vec::new();
    for RemoteReceipt { id, agent, status } in verdicts {
        let seq: Option<i64> = tx
            .db
            .prepare_cached("SELECT seq FROM messages WHERE id = ?1")?
            .query_row([id.as_bytes()], |row| row.get(0))
            .optional()?;
        let Some(seq) = seq else { continue };
        for mut delivery in reads::deliveries(tx.db, seq, id)? {
            // By the way it went: whom a hub speaks for is not always one of its own.
            let is_meant = delivery.agent.name == agent.name
                && matches!(&delivery.route, Route::Hub { hub } if Some(hub) == agent.realm.as_ref());
            let Some((state, note)) = status.moves(delivery.state).filter(|_| is_meant) else { continue };
            if let ReceiptStatus::Refused { reason } = &status {
                tell_returned(tx, &delivery, reason)?;
            } else if delivery.state.is_pending() && state != DeliveryState::Delivered {
                // Whoever was shown it has it, also where that word is still on its way.
                put_state(tx, &mut delivery, DeliveryState::Delivered, None)?;
            }
            put_state(tx, &mut delivery, state, note.cloned())?;
            moved.push(delivery);
        }
    }
    Ok(moved)
}

/// Ends deliveries to other hubs that have waited since before a moment, at most `most` of them.
pub(crate) fn expire_remote_deliveries(
    tx: &mut Work<'_>,
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
#[path = "link_tests.rs"]
mod tests;
