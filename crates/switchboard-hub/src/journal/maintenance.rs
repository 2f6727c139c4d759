//! Maintenance of delivered messages and of the journal as a whole.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId, NativeId};
use switchboard_sys::clock::timestamp_from_micros;

use crate::delivery::outbox::WAITS_FOR_DISK;
use crate::delivery::outbox::put_state;
use crate::error::{HubError, is_suspicious};
use crate::journal::chain::{self, BreakReason};
use crate::journal::reads::{self, ExpectedFile};
use crate::journal::search;
use crate::store::rows::{self, DELIVERY_COLUMNS, MESSAGE_COLUMNS, SPREAD, Stored};
use crate::store::writer::Transaction;

/// Result of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Errors that SQLite's own check reports; empty if it found none.
    pub complaints: Vec<String>,
    /// Messages whose row does not match its checksum.
    pub damaged: Vec<DamagedRow>,
    /// Number of messages in the journal.
    pub messages: u64,
    /// Number of deliveries that wait for their door, per door.
    pub pending: Vec<(Door, u64)>,
    /// Number of pending deliveries whose last attempt failed because of the disk.
    pub waiting_for_disk: u64,
}

/// Damaged row: a message that does not match its checksum. Other rows are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRow {
    /// Number of the message in the journal.
    pub seq: i64,
    /// Message id, if it can be read.
    pub id: Option<MessageId>,
    /// Native id of the message, if it can be read.
    pub native: Option<NativeId>,
    /// Recipients of the message.
    pub agents: Vec<String>,
}

/// Returns the delivery of a message to an agent.
pub(crate) fn delivery_to(
    db: &Connection,
    id: MessageId,
    agent: &AgentId,
) -> Result<Option<Delivery>, HubError> {
    let seq = db
        .prepare_cached("SELECT seq FROM messages WHERE id = ?1")?
        .query_row([id.as_bytes()], |row| row.get::<_, i64>(0))
        .optional()?;
    let Some(seq) = seq else { return Err(HubError::UnknownMessage { id: id.to_string() }) };
    Ok(reads::deliveries(db, seq, id)?.into_iter().find(|delivery| &delivery.agent == agent))
}

/// Advances an agent's deliveries to `state` unless they are already past it; returns those that changed.
pub(crate) fn advance_deliveries(
    tx: &mut Transaction<'_>,
    agent: &AgentId,
    ids: &[MessageId],
    state: DeliveryState,
    note: Option<String>,
) -> Result<Vec<Delivery>, HubError> {
    let mut moved = Vec::new();
    for id in ids {
        let Some(mut delivery) = delivery_to(tx.db, *id, agent)? else { continue };
        let on = match state {
            DeliveryState::Seen => delivery.state == DeliveryState::Delivered,
            // A queued delivery advances too: the reader may have found the message before its door reported the
            // delivery.
            _ => !delivery.state.is_final(),
        };
        if on {
            put_state(tx, &mut delivery, state, note.clone())?;
            moved.push(delivery);
        }
    }
    Ok(moved)
}

/// Supersedes earlier waiting messages of the same kind, sender and recipient: they expire.
///
/// An expired message supersedes none, and an unverified message supersedes only unverified ones.
pub(crate) fn supersede(tx: &mut Transaction<'_>, newer: MessageId) -> Result<Vec<Delivery>, HubError> {
    let Some(stored) = reads::message(tx.db, newer)? else { return Ok(Vec::new()) };
    if stored.message.expires_at.is_some_and(|at| at <= tx.now) {
        return Ok(Vec::new());
    }
    let mut older = Vec::new();
    for delivery in reads::deliveries(tx.db, stored.seq, newer)? {
        let mut statement = tx.db.prepare_cached(&format!(
            "SELECT m.id, {DELIVERY_COLUMNS} FROM deliveries d JOIN messages m ON m.seq = d.id / {SPREAD} \
             WHERE d.agent = ?1 AND d.id < ?2 AND d.state IN (2, 3) AND m.sender = ?3 AND m.kind = ?4 \
             AND m.verified <= ?5"
        ))?;
        let mut rows = statement.query(params![
            delivery.agent.to_string(),
            rows::delivery_ids(stored.seq)[0],
            stored.message.from.to_string(),
            stored.message.kind.as_str(),
            stored.message.origin.verified
        ])?;
        while let Some(row) = rows.next()? {
            // An unreadable delivery is left unchanged.
            if let Ok(id) = row.get(0)
                && let Ok(delivery) = rows::delivery(row, 1, MessageId::from_bytes(id))
            {
                older.push(delivery);
            }
        }
    }
    // The note uses the native id, because that is the id that the sender knows.
    let note = format!("superseded by {}", stored.message.origin.native.id);
    for delivery in &mut older {
        put_state(tx, delivery, DeliveryState::Expired, Some(note.clone()))?;
    }
    Ok(older)
}

/// Lists a door's notes under a topic, oldest first.
pub(crate) fn notes(db: &Connection, door: Door, topic: &str) -> Result<Vec<(String, String)>, HubError> {
    let mut statement =
        db.prepare_cached("SELECT key, value FROM notes WHERE door = ?1 AND topic = ?2 ORDER BY at, key")?;
    let rows = statement.query_map([door.as_str(), topic], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns the value of one note of a door.
pub(crate) fn get_note(
    db: &Connection,
    door: Door,
    topic: &str,
    key: &str,
) -> Result<Option<String>, HubError> {
    Ok(db
        .prepare_cached("SELECT value FROM notes WHERE door = ?1 AND topic = ?2 AND key = ?3")?
        .query_row([door.as_str(), topic, key], |row| row.get(0))
        .optional()?)
}

/// Writes a note, or deletes it if the value is `None`.
pub(crate) fn put_note(
    tx: &mut Transaction<'_>,
    door: Door,
    topic: &str,
    key: &str,
    value: Option<&str>,
) -> Result<(), HubError> {
    match value {
        Some(value) => tx
            .db
            .prepare_cached(
                "INSERT OR REPLACE INTO notes (door, topic, key, value, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![door.as_str(), topic, key, value, tx.now.as_microsecond()])?,
        None => tx
            .db
            .prepare_cached("DELETE FROM notes WHERE door = ?1 AND topic = ?2 AND key = ?3")?
            .execute([door.as_str(), topic, key])?,
    };
    Ok(())
}

/// Message with the facts on which retention decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionCandidate {
    /// Number of the message in the journal.
    pub seq: i64,
    /// Time when the message was accepted.
    pub accepted_at: Timestamp,
    /// The message, without its body.
    pub message: ExpectedFile,
    /// The sender.
    pub from: AgentId,
    /// Recipients of this hub that no longer need the message.
    pub done: Vec<AgentId>,
    /// True if no recipient needs the message any more. A message that another hub has accepted is retained by that
    /// hub.
    pub is_done: bool,
}

/// Returns the next `most` messages of the journal after a number, for retention. Skips unreadable rows.
pub(crate) fn retention_candidates(
    db: &Connection,
    after: i64,
    most: usize,
) -> Result<Vec<RetentionCandidate>, HubError> {
    let mut messages = db.prepare_cached(
        "SELECT seq, id, sender, door, scope, native_id, accepted_at FROM messages WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    )?;
    let mut deliveries = db.prepare_cached(
        "SELECT agent, state IN (4, 5, 7), state IN (4, 5, 7) OR (door = 'nats' AND state IN (2, 3)) FROM deliveries \
         WHERE id >= ?1 AND id < ?2",
    )?;
    let mut rows = messages.query(params![after, i64::try_from(most).unwrap_or(i64::MAX)])?;
    let mut candidates = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(mut found) = read_candidate(row) else { continue };
        let mut states = deliveries.query(rows::delivery_ids(found.seq))?;
        while let Some(state) = states.next()? {
            let agent = state.get::<_, String>(0).ok().and_then(|agent| agent.parse::<AgentId>().ok());
            found.is_done &= state.get::<_, bool>(2)?;
            found.done.extend(agent.filter(|agent| agent.realm.is_none() && state.get(1).unwrap_or(false)));
        }
        candidates.push(found);
    }
    Ok(candidates)
}

fn read_candidate(row: &Row<'_>) -> Option<RetentionCandidate> {
    let text = |column| row.get::<_, String>(column).ok();
    Some(RetentionCandidate {
        seq: row.get(0).ok()?,
        accepted_at: timestamp_from_micros(row.get(6).ok()?),
        message: ExpectedFile {
            id: MessageId::from_bytes(row.get(1).ok()?),
            native: NativeId { door: Door::from_name(&text(3)?)?, scope: text(4)?, id: text(5)? },
        },
        from: text(2)?.parse().ok()?,
        done: Vec::new(),
        is_done: true,
    })
}

/// Removes messages that no recipient needs from the given ones; returns how many were removed.
///
/// The last row of the journal stays, so that its number is not assigned again.
pub(crate) fn prune(tx: &mut Transaction<'_>, mut entries: Vec<i64>) -> Result<usize, HubError> {
    // The hash chain has to be bridged in the order of the journal.
    entries.sort_unstable();
    let mut last = None;
    let mut removed = 0;
    for seq in entries {
        let is_done: bool = tx
            .db
            .prepare_cached(
                "SELECT ?1 < (SELECT max(seq) FROM messages) AND NOT EXISTS (SELECT 1 FROM deliveries \
                 WHERE id >= ?2 AND id < ?3 AND state NOT IN (4, 5, 7) AND NOT (door = 'nats' AND state IN (2, 3)))",
            )?
            .query_row(params![seq, rows::delivery_ids(seq)[0], rows::delivery_ids(seq)[1]], |row| row.get(0))?;
        if !is_done {
            continue;
        }
        // The native id of a channel post stays: the post's file still exists, and the id marks it as ingested.
        tx.db
            .prepare_cached(
                "DELETE FROM native_ids WHERE door = (SELECT door FROM messages WHERE seq = ?1) \
                 AND door <> 'channels' AND id = (SELECT native_id FROM messages WHERE seq = ?1) AND seq = ?1",
            )?
            .execute([seq])?;
        remove(tx.db, seq, BreakReason::Retention, tx.now)?;
        (last, removed) = (Some(seq), removed + 1);
    }
    if let Some(last) = last {
        let pruned = last.max(reads::oldest_retained(tx.db)? - 1);
        tx.db
            .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('pruned', CAST(?1 AS TEXT))")?
            .execute([pruned])?;
    }
    Ok(removed)
}

/// Number of free pages that the database retains for later writes: 4 MiB.
const SPARE: i64 = 1024;

/// Returns up to `most` free pages to the file system.
///
/// Returns true if free pages are left.
pub(crate) fn shrink(tx: &Transaction<'_>, most: i64) -> Result<bool, HubError> {
    let free: i64 = tx.db.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let step = most.min(free - SPARE);
    if step <= 0 {
        return Ok(false);
    }
    let mut statement = tx.db.prepare(&format!("PRAGMA incremental_vacuum({step})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(free - SPARE > step)
}

/// Returns true if the database has free pages that can be returned to the file system.
pub(crate) fn has_free_pages(db: &Connection) -> Result<bool, HubError> {
    Ok(db.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0))? > SPARE)
}

/// Removes a journal entry and its deliveries, but not its native ids.
pub(crate) fn remove(db: &Connection, seq: i64, reason: BreakReason, now: Timestamp) -> rusqlite::Result<()> {
    search::remove(db, seq)?;
    db.prepare_cached("DELETE FROM deliveries WHERE id >= ?1 AND id < ?2")?
        .execute(rows::delivery_ids(seq))?;
    db.prepare_cached("DELETE FROM stops WHERE seq = ?1")?.execute([seq])?;
    chain::bridge(db, seq, reason, now)?;
    db.prepare_cached("DELETE FROM messages WHERE seq = ?1")?.execute([seq])?;
    Ok(())
}

/// Checks the messages after a journal number for damage; from 0 on, checks the whole database.
pub(crate) fn health(db: &Connection, after: i64) -> Result<Health, HubError> {
    let mut complaints = Vec::new();
    let check = if after == 0 { "PRAGMA integrity_check(20)" } else { "PRAGMA quick_check('meta')" };
    let mut statement = db.prepare(check)?;
    for line in statement.query_map([], |row| row.get::<_, String>(0))? {
        match line {
            Ok(line) => complaints.push(line),
            // A check that cannot run is reported as an error too.
            Err(error) if is_suspicious(&error) => complaints.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    complaints.retain(|line| line != "ok");
    let mut damaged = Vec::new();
    let mut messages = 0;
    let mut statement =
        db.prepare(&format!("SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.seq > ?1 ORDER BY m.seq"))?;
    let mut rows = statement.query([after])?;
    while let Some(row) = rows.next()? {
        messages += 1;
        if Stored::read(row).is_ok() {
            continue;
        }
        let seq: i64 = row.get(0)?;
        let text = |column| row.get::<_, String>(column).ok();
        let native =
            || Some(NativeId { door: Door::from_name(&text(12)?)?, scope: text(13)?, id: text(14)? });
        let mut agents = db.prepare_cached("SELECT agent FROM deliveries WHERE id >= ?1 AND id < ?2")?;
        let agents = agents.query_map(rows::delivery_ids(seq), |row| row.get(0))?;
        damaged.push(DamagedRow {
            seq,
            id: row.get(1).ok().map(MessageId::from_bytes),
            native: native(),
            agents: agents.filter_map(Result::ok).collect(),
        });
    }
    let (mut pending, mut waiting_for_disk) = (Vec::new(), 0);
    for door in Door::ALL {
        let (count, waiting): (u64, u64) = db.query_row(
            "SELECT count(*), count(*) FILTER (WHERE substr(note, 1, length(?2)) = ?2) FROM deliveries \
             WHERE door = ?1 AND (state < 2 OR state = 6)",
            [door.as_str(), WAITS_FOR_DISK],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        if count > 0 {
            pending.push((door, count));
        }
        waiting_for_disk += waiting;
    }
    Ok(Health { complaints, damaged, messages, pending, waiting_for_disk })
}

/// Returns true if the doors have read their files back since the database was created.
pub(crate) fn rebuilt(db: &Connection) -> Result<bool, HubError> {
    Ok(db.query_row("SELECT EXISTS (SELECT 1 FROM meta WHERE key = 'rebuilt')", [], |row| row.get(0))?)
}

/// Makes the doors read their files back again.
pub(crate) fn forget_rebuilt(db: &Connection) -> Result<(), HubError> {
    db.execute("DELETE FROM meta WHERE key = 'rebuilt'", [])?;
    Ok(())
}

pub(crate) fn set_rebuilt(tx: &mut Transaction<'_>) -> Result<(), HubError> {
    tx.db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('rebuilt', '1')", [])?;
    chain::note_rebuilt(tx.db, tx.now)?;
    Ok(())
}

/// Returns the next page of journal numbers and message ids after `last`.
pub(crate) fn ids_after(db: &Connection, last: i64) -> Result<Vec<(i64, MessageId)>, HubError> {
    let mut statement =
        // A row with an unreadable id is skipped; otherwise the listing would never get past the row.
        db.prepare_cached(
            "SELECT seq, id FROM messages WHERE seq > ?1 AND typeof(id) = 'blob' AND length(id) = 16 \
             ORDER BY seq LIMIT 1000",
        )?;
    let rows = statement.query_map([last], |row| Ok((row.get(0)?, MessageId::from_bytes(row.get(1)?))))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
#[path = "maintenance_tests.rs"]
mod tests;
