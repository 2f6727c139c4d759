//! Rollback of commits that the disk did not store.
//!
//! A commit whose sync failed is nevertheless in the log, visible to every process, and would be delivered although its
//! sender was told that it was not accepted. Its messages are therefore removed in a separate transaction. A message
//! whose delivery another process has already started cannot be removed, because its reader may have it. Such a message
//! stays, and once it is on disk its sender is told that it was accepted.
//!
//! After a failed sync the operating system may have dropped the pages, and a second sync does not report that. No
//! submitter is therefore told "on disk" again until the whole log was rewritten into the database and the log is
//! empty.

use std::collections::HashSet;
use std::fs::File;

use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, params};
use switchboard_core::MessageId;

use crate::journal::chain::BreakReason;
use crate::journal::maintenance;
use crate::store::rows;

/// Journal entry that a transaction appended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendedEntry {
    /// Index of the entry's job in its batch.
    pub(crate) job: usize,
    pub(crate) seq: i64,
    pub(crate) id: MessageId,
}

/// Rolls back entries in one transaction; returns those that had to stay in the journal.
///
/// `owner` is the id of this process in the leases of deliveries; `meanwhile` runs while no other process can write.
pub(crate) fn roll_back(
    db: &mut Connection,
    entries: &[AppendedEntry],
    owner: &str,
    now: Timestamp,
    meanwhile: impl FnOnce(),
) -> rusqlite::Result<HashSet<MessageId>> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut retained = HashSet::new();
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.seq);
    for AppendedEntry { seq, id, .. } in entries {
        let is_there = "SELECT EXISTS (SELECT 1 FROM messages WHERE seq = ?1 AND id = ?2)";
        if !tx.query_row(is_there, params![seq, id.as_bytes()], |row| row.get(0))? {
            continue;
        }
        if is_being_delivered(&tx, seq, owner)? {
            retained.insert(id);
            continue;
        }
        tx.execute("DELETE FROM native_ids WHERE seq = ?1", [seq])?;
        maintenance::remove(&tx, seq, BreakReason::Refused, now)?;
        // A reader that has seen the number continues after it, so the number is not assigned again.
        tx.execute(
            "INSERT INTO meta (key, value) VALUES ('floor', ?1) ON CONFLICT (key) \
             DO UPDATE SET value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))",
            [seq.to_string()],
        )?;
    }
    meanwhile();
    tx.commit()?;
    Ok(retained)
}

/// Returns true if another process delivers a message, or its reader already has it.
fn is_being_delivered(db: &Connection, seq: i64, owner: &str) -> rusqlite::Result<bool> {
    let [first, end] = rows::delivery_ids(seq);
    db.query_row(
        "SELECT EXISTS (SELECT 1 FROM deliveries WHERE id >= ?1 AND id < ?2 \
         AND (seen_at IS NOT NULL OR acknowledged_at IS NOT NULL \
         OR NOT (attempts = 0 OR (attempts = 1 AND state = 1 AND owner IS ?3))))",
        params![first, end, owner],
        |row| row.get(0),
    )
}

/// Checkpoints the whole log into the database and syncs it, without relying on earlier syncs.
pub(crate) fn rewrite(db: &Connection, log: &File) -> rusqlite::Result<()> {
    db.pragma_update(None, "synchronous", "FULL")?;
    let busy: bool = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(code, None));
    }
    // The truncation of the log has to be durable as well, because remains of the log on the disk may be incomplete.
    log.sync_all().map_err(super::commit::not_on_disk)
}

#[cfg(test)]
#[path = "rollback_tests.rs"]
mod tests;
