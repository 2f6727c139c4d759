//! The full-text index over bodies.
//!
//! It is filled behind the journal, by whoever searches and by the running hub when it is idle:
//! splitting a body into words costs more than journaling it, and nobody waits for it in `submit`.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::HubError;
use crate::store::writer::Work;

/// How many messages are indexed in one transaction, so that senders are not kept waiting.
const STEP: i64 = 500;

/// How far the index has got.
fn indexed(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'searchable'")?
        .query_row([], |row| row.get(0))
        .optional()
        .map(|seq| seq.unwrap_or(0))
}

/// Whether there are messages the index does not know yet.
pub(crate) fn is_behind(db: &Connection) -> Result<bool, HubError> {
    Ok(indexed(db)? < crate::reads::last(db)?)
}

/// Takes the next messages into the index; says whether there are more.
pub(crate) fn catch_up(tx: &mut Work<'_>) -> Result<bool, HubError> {
    let from = indexed(tx.db)?;
    let to: Option<i64> = tx.db.query_row(
        "SELECT max(seq) FROM (SELECT seq FROM messages WHERE seq > ?1 ORDER BY seq LIMIT ?2)",
        params![from, STEP],
        |row| row.get(0),
    )?;
    let Some(to) = to else { return Ok(false) };
    tx.db.execute(
        "INSERT INTO search (rowid, body) SELECT seq, body FROM messages WHERE seq > ?1 AND seq <= ?2",
        [from, to],
    )?;
    tx.db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('searchable', ?1)", [to.to_string()])?;
    is_behind(tx.db)
}
