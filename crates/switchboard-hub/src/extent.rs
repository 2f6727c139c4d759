//! How much of a store an examination covers.

use rusqlite::{Connection, OptionalExtension};

use crate::error::HubError;

/// How many of the newest messages a bounded examination covers: less than a second's work, however large the store is.
pub const NEWEST: usize = 1_000;

/// Part of the journal that is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The newest [`NEWEST`] messages.
    Newest,
    /// Every message.
    Everything,
}

impl Extent {
    /// The place in the journal after which messages are examined; 0 where that is all of them.
    pub(crate) fn after(self, db: &Connection) -> Result<i64, HubError> {
        if self == Self::Everything {
            return Ok(0);
        }
        let oldest = "SELECT seq FROM messages ORDER BY seq DESC LIMIT 1 OFFSET ?1";
        let before = db.query_row(oldest, [i64::try_from(NEWEST).unwrap_or(i64::MAX)], |row| row.get(0));
        Ok(before.optional()?.unwrap_or(0))
    }
}
