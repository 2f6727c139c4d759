//! Full-text search index over message bodies (FTS5).
//!
//! Processes that send or serve index the journal in the background, a bounded number of messages at a time: tokenizing
//! a body costs more than journaling it, and `submit` does not wait for it.
//!
//! The index covers two ranges of the journal: all messages up to `base`, and all messages from `low` to `high`. If
//! many messages are missing, the second range starts at the newest ones, so that a search for recent messages does not
//! wait for old ones. It grows upwards with the journal and downwards until the two ranges meet.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::HubError;
use crate::store::writer::Transaction;

/// Maximum number of messages that one transaction indexes.
///
/// That takes about 20 ms, so that senders do not wait long.
pub(crate) const STEP: i64 = 500;

/// Number of missing messages from which on the newest are indexed first: about a second of work.
const NEWEST_FIRST: i64 = 20_000;

/// Number of unindexed messages at which a send-only process indexes a batch.
///
/// With this number, one command in 64 does the work.
const DUE: i64 = 64;

/// Maximum number of messages that a send-only process indexes before it exits: about 4 ms.
///
/// It is twice [`DUE`], so that the index catches up.
pub(crate) const PORTION: i64 = 2 * DUE;

/// Ranges of the journal that the index covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// All messages up to this number are indexed.
    base: i64,
    /// First number of the second indexed range, which ends at `high`.
    ///
    /// The range is empty if `high` is below `low`.
    low: i64,
    high: i64,
    /// Number of the last message of the journal.
    last: i64,
}

impl Coverage {
    pub(crate) fn read(db: &Connection) -> Result<Self, HubError> {
        Ok(Self::read_rows(db)?)
    }

    fn read_rows(db: &Connection) -> rusqlite::Result<Self> {
        let number = |key: &str| -> rusqlite::Result<Option<i64>> {
            db.prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?1")?
                .query_row([key], |row| row.get(0))
                .optional()
        };
        let base = number("searchable")?.unwrap_or(0);
        let low = number("searchable_low")?.unwrap_or(base + 1);
        let high = number("searchable_high")?.unwrap_or(base);
        let last = db
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM messages")?
            .query_row([], |row| row.get(0))?;
        Ok(Self { base, low, high, last })
    }

    fn write(self, tx: &Transaction<'_>) -> rusqlite::Result<()> {
        let mut put =
            tx.db.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, CAST(?2 AS TEXT))")?;
        put.execute(params!["searchable", self.base])?;
        if self.is_in_two() {
            put.execute(params!["searchable_low", self.low])?;
            put.execute(params!["searchable_high", self.high])?;
        } else {
            tx.db
                .prepare_cached("DELETE FROM meta WHERE key IN ('searchable_low', 'searchable_high')")?
                .execute([])?;
        }
        Ok(())
    }

    fn is_in_two(self) -> bool {
        self.high >= self.low
    }

    /// Returns the number of the newest indexed message.
    fn end(self) -> i64 {
        if self.is_in_two() { self.high } else { self.base }
    }

    /// Returns true if the index covers a message.
    pub(crate) fn has(self, seq: i64) -> bool {
        seq <= self.base || (self.low..=self.high).contains(&seq)
    }

    /// Returns the maximum number of messages that are not indexed yet. Retention may have removed some of them.
    pub(crate) fn missing(self) -> i64 {
        let between = if self.is_in_two() { self.low - 1 - self.base } else { 0 };
        between.max(0) + (self.last - self.end()).max(0)
    }

    /// Returns true if the index is sufficient for a result page.
    ///
    /// No unindexed message may belong to the page, which contains the newest messages before `before`, down to
    /// `oldest`.
    pub(crate) fn answers(self, before: Option<i64>, oldest: Option<i64>) -> bool {
        let newest = before.map_or(self.last, |before| self.last.min(before.saturating_sub(1)));
        newest <= self.base || (self.has(newest) && oldest.is_some_and(|oldest| oldest >= self.low))
    }

    /// Returns true if a send-only process should index a batch.
    pub(crate) fn is_due(self) -> bool {
        self.missing() >= DUE
    }
}

/// Returns the number of messages that are not indexed yet.
pub(crate) fn missing(db: &Connection) -> Result<i64, HubError> {
    Ok(Coverage::read(db)?.missing())
}

/// Indexes the next `most` messages; returns the new coverage.
///
/// If many messages are missing, the newest are indexed first.
pub(crate) fn catch_up(tx: &mut Transaction<'_>, most: i64) -> Result<Coverage, HubError> {
    let mut now = Coverage::read(tx.db)?;
    if now.end() < now.last {
        if !now.is_in_two() && now.last - now.base > NEWEST_FIRST {
            (now.low, now.high) = ((now.last - most + 1).max(now.base + 1), now.last);
            insert(tx, now.low, now.high)?;
        } else {
            let to = last_of_step(tx, now.end(), now.last, most)?;
            insert(tx, now.end() + 1, to)?;
            if now.is_in_two() { now.high = to } else { now.base = to }
        }
    } else if now.is_in_two() {
        let from = first_of_step(tx, now.low, now.base, most)?;
        insert(tx, from, now.low - 1)?;
        now.low = from;
    } else {
        return Ok(now);
    }
    if now.is_in_two() && now.low <= now.base + 1 {
        (now.base, now.low, now.high) = (now.high, now.high + 1, now.high);
    }
    now.write(tx)?;
    Ok(now)
}

/// Returns the last message of the next step after `from`, skipping gaps left by retention.
fn last_of_step(tx: &Transaction<'_>, from: i64, last: i64, most: i64) -> Result<i64, HubError> {
    let sql = "SELECT max(seq) FROM (SELECT seq FROM messages WHERE seq > ?1 ORDER BY seq LIMIT ?2)";
    let found: Option<i64> = tx.db.prepare_cached(sql)?.query_row([from, most], |row| row.get(0))?;
    Ok(found.unwrap_or(last))
}

/// Returns the first message of the next step between `base` and `low`.
fn first_of_step(tx: &Transaction<'_>, low: i64, base: i64, most: i64) -> Result<i64, HubError> {
    let sql = "SELECT min(seq), count(*) FROM (SELECT seq FROM messages WHERE seq < ?1 AND seq > ?2 \
               ORDER BY seq DESC LIMIT ?3)";
    let (first, count): (Option<i64>, i64) =
        tx.db.prepare_cached(sql)?.query_row([low, base, most], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(first.filter(|_| count == most).unwrap_or(base + 1))
}

fn insert(tx: &Transaction<'_>, from: i64, to: i64) -> rusqlite::Result<()> {
    tx.db
        .prepare_cached(
            "INSERT INTO search (rowid, body) SELECT seq, body FROM messages WHERE seq >= ?1 AND seq <= ?2 \
             ORDER BY seq",
        )?
        .execute([from, to])?;
    Ok(())
}

/// Removes a message from the index before the message is deleted.
pub(crate) fn remove(db: &Connection, seq: i64) -> rusqlite::Result<()> {
    if Coverage::read_rows(db)?.has(seq) {
        db.prepare_cached(
            "INSERT INTO search (search, rowid, body) SELECT 'delete', seq, body FROM messages WHERE seq = ?1",
        )?
        .execute([seq])?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
