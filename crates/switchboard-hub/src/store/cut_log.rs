//! Recovery from a write-ahead log that another program cut short while it was in use.
//!
//! SQLite does not notice: the index of the log still names frames that are gone, reads of them fail, and further frames are
//! written behind a hole that no recovery gets past. So the length of the log is compared before each transaction. It shrinks
//! in earnest only when everything in it has been written back. Otherwise all connections of this process are closed, and
//! the database is opened as after a crash, with what is left of the log. The doors read back what their files hold of the rest.

use rusqlite::Connection;

use crate::error::{HubError, is_damage};
use crate::maintenance;
use crate::store::finish::Finisher;
use crate::store::recover::{self, DATABASE, alone_or, share};
use crate::store::writer::{After, Setup};

/// Bytes before the first frame of a log, and before the page of each frame.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// The length of the log as it was last seen.
#[derive(Debug)]
pub(crate) struct LogLength {
    name: String,
    inode: Option<u64>,
    seen: u64,
    /// The last entry that this process wrote into the journal.
    last_seq: i64,
    is_broken: bool,
}

impl LogLength {
    /// The log as it is now.
    pub(crate) fn begin(setup: &Setup) -> Self {
        let name = setup.log_name();
        let found = setup.folder.stat(&name).ok().flatten();
        let (inode, seen) = (found.map(|found| found.inode), found.map_or(0, |found| found.len));
        Self { name, inode, seen, last_seq: 0, is_broken: false }
    }

    /// Notes a commit of this process.
    pub(crate) fn note(&mut self, setup: &Setup, after: &After) {
        if let Ok(Some(found)) = setup.folder.stat(&self.name)
            && Some(found.inode) == self.inode
        {
            self.seen = found.len;
        }
        self.last_seq = after.appended.last().map_or(self.last_seq, |entry| entry.seq.max(self.last_seq));
    }

    /// Recovers the store where its log was cut. Says whether it did: nothing that was remembered holds then. Fails where
    /// it must be tried again, and then nothing can be written.
    pub(crate) fn check(
        &mut self,
        connection: &mut Connection,
        setup: &Setup,
        finisher: &Finisher,
    ) -> Result<bool, HubError> {
        if !self.is_broken {
            // One that was removed or replaced is the matter of `LogWatch`.
            let Ok(Some(found)) = setup.folder.stat(&self.name) else { return Ok(false) };
            if Some(found.inode) != self.inode || found.len >= self.seen || is_whole(connection, found.len)? {
                self.seen = if Some(found.inode) == self.inode { found.len } else { self.seen };
                return Ok(false);
            }
            let (before, now) = (self.seen, found.len);
            tracing::error!(
                log = self.name,
                before,
                now,
                "the log was cut while it was in use; it is recovered"
            );
            self.is_broken = true;
            let last = connection.query_row("SELECT max(seq) FROM messages", [], |row| row.get(0));
            self.last_seq = last.unwrap_or(0).max(self.last_seq);
        }
        finisher.forget_log();
        // The connections of a process share the index of the log.
        *connection = Connection::open_in_memory()?;
        *connection = setup.store.readers.while_closed(|| self.reopen(setup))?;
        *self = Self { last_seq: self.last_seq, ..Self::begin(setup) };
        setup.store.place.renew();
        setup.store.note_recovery();
        tracing::warn!(
            log = self.name,
            "the store goes on; messages that the log held are read back from files"
        );
        Ok(true)
    }

    fn reopen(&self, setup: &Setup) -> Result<Connection, HubError> {
        let in_use = || HubError::DamagedInUse { path: setup.folder.path().join(DATABASE) };
        let lock = setup.store.lock.as_ref().ok_or_else(in_use)?;
        let opened = match alone_or(lock, || false) {
            Some(()) => {
                recover::suspect(&setup.folder);
                recover::open_or_recover(&setup.folder, lock, setup.config.key.as_ref())
            }
            None => Err(in_use()),
        };
        share(lock);
        let connection = opened?.connection;
        maintenance::forget_rebuilt(&connection)?;
        // A reader that has seen the numbers of lost messages reads on after them.
        connection.execute(
            "INSERT INTO meta (key, value) VALUES ('floor', ?1) ON CONFLICT (key) \
             DO UPDATE SET value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))",
            [self.last_seq.to_string()],
        )?;
        Ok(connection)
    }
}

/// Whether a log of this length has all frames that are not in the database yet.
fn is_whole(connection: &Connection, len: u64) -> Result<bool, HubError> {
    let asked = connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| Ok((row.get(1)?, row.get(2)?)));
    let (frames, written): (i64, i64) = match asked {
        Err(error) if is_damage(&error) || is_short_read(&error) => return Ok(false),
        asked => asked?,
    };
    if frames <= written {
        return Ok(true);
    }
    let page: u64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let frames = u64::try_from(frames).unwrap_or_default();
    Ok(len >= LOG_HEADER + frames * (FRAME_HEADER + page))
}

/// Whether a file of the database ends before what should be in it.
pub(crate) fn is_short_read(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

#[cfg(test)]
#[path = "cut_log_tests.rs"]
mod tests;
