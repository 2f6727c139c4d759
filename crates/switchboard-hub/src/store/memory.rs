//! What the writer need not ask the database again with each transaction.
//!
//! While many messages come in, hardly anybody else writes between two transactions. SQLite tells: `data_version` stays
//! as it is over the commits of one connection and changes with those of all others, whichever process they belong to.

use jiff::Timestamp;
use rusqlite::Connection;

use crate::outbox::Doors;
use crate::store::writer::End;

/// What held at the end of a transaction. It still does at the next one, unless its [`Mark`] has changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) mark: Mark,
    /// The end of the journal, where somebody has asked.
    pub(crate) end: Option<End>,
    /// When a delivery is due at the earliest, at the doors that are open here. None is before that.
    pub(crate) next_due: Timestamp,
}

/// Changes when somebody else has written, or when a door was opened: then what was left for it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    data_version: i64,
    doors_opened: u64,
}

impl Mark {
    /// As of the open transaction.
    pub(crate) fn now(db: &Connection, doors: &Doors) -> rusqlite::Result<Self> {
        let data_version = db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        Ok(Self { data_version, doors_opened: doors.opened() })
    }
}
