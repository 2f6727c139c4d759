//! What was done with claims, reservations and stops, and who has left, for whoever watches.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use switchboard_core::AgentId;
use switchboard_sys::clock::from_micros;

use crate::error::HubError;
use crate::store::writer::Work;

/// How many are kept. It is a record for those who watch, not the history of the work.
const KEPT: i64 = 10_000;

/// Something that an agent did that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// Its place among the others; the cursor of a listing.
    pub id: i64,
    /// The last message of the journal before it.
    pub after: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub agent: AgentId,
    /// What: `claimed`, `renewed`, `released`, `reserved`, `unreserved`, `resumed` or `left`.
    pub what: String,
    /// With what: a task, a pattern, a message.
    pub thing: String,
    /// What else there is to say.
    pub detail: Option<String>,
}

/// Notes what an agent did.
pub(crate) fn note(
    tx: &mut Work<'_>,
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

/// What was done after a cursor, or after a message of the journal, in order.
pub(crate) fn list(db: &Connection, after: i64, seq: i64, limit: usize) -> Result<Vec<Activity>, HubError> {
    let mut statement = db.prepare_cached(
        "SELECT id, after, at, agent, what, thing, detail FROM activity WHERE id > ?1 AND after >= ?2 ORDER BY id LIMIT ?3",
    )?;
    let mut rows = statement.query([after, seq, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut list = Vec::new();
    while let Some(row) = rows.next()? {
        // One that cannot be read is left out: nothing depends on it.
        list.extend(read(row));
    }
    Ok(list)
}

/// The cursor behind everything that was done.
pub(crate) fn last(db: &Connection) -> Result<i64, HubError> {
    Ok(db.query_row("SELECT coalesce(max(id), 0) FROM activity", [], |row| row.get(0))?)
}

fn read(row: &Row<'_>) -> Option<Activity> {
    Some(Activity {
        id: row.get(0).ok()?,
        after: row.get(1).ok()?,
        at: from_micros(row.get(2).ok()?),
        agent: row.get::<_, String>(3).ok()?.parse().ok()?,
        what: row.get(4).ok()?,
        thing: row.get(5).ok()?,
        detail: row.get(6).ok()?,
    })
}
