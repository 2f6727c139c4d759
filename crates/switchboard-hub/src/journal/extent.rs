//! Extent of a check: the newest messages, or all of them.

use rusqlite::{Connection, OptionalExtension};

use crate::error::HubError;

/// Number of messages that a bounded check covers.
///
/// The check takes less than a second, however large the store is.
pub const NEWEST: usize = 1_000;

/// Part of the journal that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The newest [`NEWEST`] messages.
    Newest,
    /// Every message.
    Everything,
}

impl Extent {
    /// Returns the journal number after which messages are checked, or 0 for all messages.
    pub(crate) fn after(self, db: &Connection) -> Result<i64, HubError> {
        if self == Self::Everything {
            return Ok(0);
        }
        let oldest = "SELECT seq FROM messages ORDER BY seq DESC LIMIT 1 OFFSET ?1";
        let before = db.query_row(oldest, [i64::try_from(NEWEST).unwrap_or(i64::MAX)], |row| row.get(0));
        Ok(before.optional()?.unwrap_or(0))
    }
}
