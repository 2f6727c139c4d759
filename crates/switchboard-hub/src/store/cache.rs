//! Cache of the writer: state that is reused by the next transaction.
//!
//! Under load, other connections rarely write between two transactions. SQLite reports such writes: `data_version`
//! stays the same over the commits of one connection, and changes with those of all other connections in any process.

use jiff::Timestamp;
use rusqlite::Connection;

use crate::delivery::outbox::Doors;
use crate::store::writer::JournalTail;

/// State at the end of a transaction, for reuse by the next one.
///
/// The state is valid unless its [`CacheVersion`] has changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterCache {
    pub(crate) version: CacheVersion,
    /// Tail of the journal, if it was read.
    pub(crate) tail: Option<JournalTail>,
    /// Earliest due time of a delivery for the doors that are open here.
    pub(crate) next_due: Timestamp,
}

/// Version that invalidates the cache.
///
/// It changes when another connection has written, or when a door was opened, because the door's waiting deliveries are
/// then due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheVersion {
    data_version: i64,
    doors_opened: u64,
}

impl CacheVersion {
    /// Reads the current version within the open transaction.
    pub(crate) fn read(db: &Connection, doors: &Doors) -> rusqlite::Result<Self> {
        let data_version = db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        Ok(Self { data_version, doors_opened: doors.opened() })
    }
}
