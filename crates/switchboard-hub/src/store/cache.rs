//! Cache of the writer between two transactions.
//!
//! Under load, other connections rarely write between two transactions. SQLite reports it: `data_version` stays
//! the same over the commits of one connection and changes with those of all others, in whichever process.

use jiff::Timestamp;
use rusqlite::Connection;

use crate::delivery::outbox::Doors;
use crate::store::writer::JournalTail;

/// State at the end of a transaction. Valid at the next one unless its [`CacheVersion`] has changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterCache {
    pub(crate) version: CacheVersion,
    /// Tail of the journal, if it was read.
    pub(crate) tail: Option<JournalTail>,
    /// Earliest due time of a delivery at the doors that are open here.
    pub(crate) next_due: Timestamp,
}

/// Changes when another connection has written, or when a door was opened: then its waiting deliveries are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheVersion {
    data_version: i64,
    doors_opened: u64,
}

impl CacheVersion {
    /// Reads the version within the open transaction.
    pub(crate) fn read(db: &Connection, doors: &Doors) -> rusqlite::Result<Self> {
        let data_version = db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        Ok(Self { data_version, doors_opened: doors.opened() })
    }
}
