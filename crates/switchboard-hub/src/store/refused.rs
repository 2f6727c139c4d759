//! What the disk did not take, although it was committed, is taken back.
//!
//! A commit whose wait failed is in the log all the same, for every process to see, and would be delivered although its
//! sender was told that it was not accepted. So the messages of such a commit are removed in a transaction of its own. One
//! that another process has taken on by then cannot be: its reader may have it. It stays, and once it is on disk its
//! sender is told that it was accepted.
//!
//! After a failed wait the system may have dropped what it was to write, and a second wait says nothing of that. So
//! nobody is told "on disk" again before everything in the log has been written anew, into the database, and the
//! log is empty.

use std::collections::HashSet;
use std::fs::File;

use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, params};
use switchboard_core::MessageId;

use crate::maintenance;
use crate::store::chain::BreakReason;
use crate::store::rows;

/// An entry of the journal as a transaction wrote it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    /// Which job of its batch wrote it.
    pub(crate) job: usize,
    pub(crate) seq: i64,
    pub(crate) id: MessageId,
}

/// Removes entries, in one transaction; returns those that had to stay. `owner` is this process, as deliveries name
/// it; `meanwhile` runs while nobody else can write.
pub(crate) fn take_back(
    db: &mut Connection,
    entries: &[Appended],
    owner: &str,
    now: Timestamp,
    meanwhile: impl FnOnce(),
) -> rusqlite::Result<HashSet<MessageId>> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut kept = HashSet::new();
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.seq);
    for Appended { seq, id, .. } in entries {
        let is_there = "SELECT EXISTS (SELECT 1 FROM messages WHERE seq = ?1 AND id = ?2)";
        if !tx.query_row(is_there, params![seq, id.as_bytes()], |row| row.get(0))? {
            continue;
        }
        if is_taken_on(&tx, seq, owner)? {
            kept.insert(id);
            continue;
        }
        tx.execute("DELETE FROM native_ids WHERE seq = ?1", [seq])?;
        maintenance::remove(&tx, seq, BreakReason::Refused, now)?;
        // Whoever has seen the number reads on after it, so it is not given out again.
        tx.execute(
            "INSERT INTO meta (key, value) VALUES ('floor', ?1) ON CONFLICT (key) \
             DO UPDATE SET value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))",
            [seq.to_string()],
        )?;
    }
    meanwhile();
    tx.commit()?;
    Ok(kept)
}

/// Whether somebody else has begun to deliver a message, or its reader has it.
fn is_taken_on(db: &Connection, seq: i64, owner: &str) -> rusqlite::Result<bool> {
    let [first, end] = rows::delivery_ids(seq);
    db.query_row(
        "SELECT EXISTS (SELECT 1 FROM deliveries WHERE id >= ?1 AND id < ?2 \
         AND (seen_at IS NOT NULL OR acknowledged_at IS NOT NULL \
         OR NOT (attempts = 0 OR (attempts = 1 AND state = 1 AND owner IS ?3))))",
        params![first, end, owner],
        |row| row.get(0),
    )
}

/// Writes everything in the log into the database and waits for it, in the way that trusts no earlier wait.
pub(crate) fn write_anew(db: &Connection, log: &File) -> rusqlite::Result<()> {
    db.pragma_update(None, "synchronous", "FULL")?;
    let busy: bool = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(code, None));
    }
    // That the log is empty has to last as well: what is left of it on the disk may be incomplete.
    log.sync_all().map_err(super::finish::not_on_disk)
}

#[cfg(test)]
#[path = "refused_tests.rs"]
mod tests;
