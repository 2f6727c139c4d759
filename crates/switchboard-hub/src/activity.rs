//! Activity log: what agents did with claims, reservations and stopped messages, and agents that left.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use switchboard_core::AgentId;
use switchboard_sys::clock::timestamp_from_micros;

use crate::error::HubError;
use crate::store::writer::Transaction;

/// Number of log entries that are retained. The log serves dashboards; it is not the history of the work.
const KEPT: i64 = 10_000;

/// Entry of the activity log: an agent's action other than a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// Number of the entry, which is also the cursor for listing.
    pub id: i64,
    /// Number of the last message in the journal at the time of the action.
    pub after: i64,
    /// Time of the action.
    pub at: Timestamp,
    /// The agent that acted.
    pub agent: AgentId,
    /// The action: `claimed`, `renewed`, `released`, `reserved`, `unreserved`, `resumed` or `left`.
    pub what: String,
    /// Object of the action: a task, a pattern or a message.
    pub thing: String,
    /// Further detail, such as the number of a claim.
    pub detail: Option<String>,
}

/// Appends an action to the log.
pub(crate) fn note(
    tx: &mut Transaction<'_>,
    agent: &AgentId,
    what: &str,
    thing: &str,
    detail: Option<&str>,
) -> Result<(), HubError> {
    let after = tx.last_seq()?;
    tx.db
        .prepare_cached(
            "INSERT INTO activity (after, at, agent, what, thing, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![after, tx.now.as_microsecond(), agent.to_string(), what, thing, detail])?;
    let id = tx.db.last_insert_rowid();
    tx.db.prepare_cached("DELETE FROM activity WHERE id <= ?1")?.execute([id - KEPT])?;
    Ok(())
}

/// Lists actions in order, after a cursor and from a given journal number on.
pub(crate) fn list(db: &Connection, after: i64, seq: i64, limit: usize) -> Result<Vec<Activity>, HubError> {
    let mut statement = db.prepare_cached(
        "SELECT id, after, at, agent, what, thing, detail FROM activity WHERE id > ?1 AND after >= ?2 ORDER BY id LIMIT ?3",
    )?;
    let mut rows = statement.query([after, seq, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut list = Vec::new();
    while let Some(row) = rows.next()? {
        // An unreadable entry is skipped, because nothing depends on it.
        list.extend(read(row));
    }
    Ok(list)
}

/// Returns the cursor of the latest action.
pub(crate) fn last(db: &Connection) -> Result<i64, HubError> {
    Ok(db.query_row("SELECT coalesce(max(id), 0) FROM activity", [], |row| row.get(0))?)
}

fn read(row: &Row<'_>) -> Option<Activity> {
    Some(Activity {
        id: row.get(0).ok()?,
        after: row.get(1).ok()?,
        at: timestamp_from_micros(row.get(2).ok()?),
        agent: row.get::<_, String>(3).ok()?.parse().ok()?,
        what: row.get(4).ok()?,
        thing: row.get(5).ok()?,
        detail: row.get(6).ok()?,
    })
}
