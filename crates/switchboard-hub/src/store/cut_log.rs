//! Recovery from a write-ahead log that another program cut short while it was in use.
//!
//! SQLite does not notice: the index of the log still names frames that are gone, reads of them fail, and further frames are
//! written behind a hole that no recovery gets past. So the length of the log is compared before each transaction, and
//! the frame before each commit is looked for after it: a log that is cut during a transaction has its length back. A log
//! may shrink only when all its frames are in the database. Otherwise all connections of this process are closed, and
//! the database is opened as after a crash, with what is left of the log. The doors read back what their files hold of the rest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rusqlite::Connection;

use crate::error::{HubError, is_damage};
use crate::maintenance;
use crate::store::finish::{Finisher, not_on_disk};
use crate::store::recover::{self, DATABASE, alone_or, share};
use crate::store::writer::{After, Setup};

/// Bytes before the first frame of a log, and before the page of each frame.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// Where the header of the log and that of each frame have the salts. They are the same in all frames of one run through the log.
const LOG_SALTS: u64 = 16;
const FRAME_SALTS: u64 = 8;

/// The length of the log as it was last seen.
#[derive(Debug)]
pub(crate) struct LogLength {
    name: String,
    log: Option<File>,
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
        let log = setup.folder.open_existing(&name).ok().flatten();
        let found = setup.folder.stat(&name).ok().flatten();
        let (inode, seen) = (found.map(|found| found.inode), found.map_or(0, |found| found.len));
        Self { name, log, inode, seen, last_seq: 0, is_broken: false }
    }

    /// Notes a commit of this process. Fails where the log was cut during the transaction: then the commit is behind a hole.
    pub(crate) fn note(&mut self, setup: &Setup, after: &After) -> rusqlite::Result<()> {
        self.last_seq = after.appended.last().map_or(self.last_seq, |entry| entry.seq.max(self.last_seq));
        let Ok(Some(found)) = setup.folder.stat(&self.name) else { return Ok(()) };
        if Some(found.inode) != self.inode || found.len < self.seen {
            // The next `check` looks closer.
            return Ok(());
        }
        if self.log.as_ref().is_some_and(|log| has_hole_before(log, self.seen).unwrap_or(false)) {
            self.note_cut(self.seen, found.len);
            return Err(not_on_disk("the write-ahead log was cut"));
        }
        self.seen = found.len;
        Ok(())
    }

    fn note_cut(&mut self, before: u64, now: u64) {
        let log = &self.name;
        tracing::error!(log, before, now, "the log was cut while it was in use; it is recovered");
        self.is_broken = true;
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
            let is_same = Some(found.inode) == self.inode;
            if !is_same || found.len >= self.seen || is_whole(connection, self.log.as_ref(), found.len)? {
                self.seen = if is_same { found.len } else { self.seen };
                return Ok(false);
            }
            self.note_cut(self.seen, found.len);
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
fn is_whole(connection: &Connection, log: Option<&File>, len: u64) -> Result<bool, HubError> {
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
    let is_long_enough = len >= LOG_HEADER + frames * (FRAME_HEADER + page);
    Ok(is_long_enough && log.is_none_or(|log| has_frames(log, frames, page).unwrap_or(false)))
}

/// Whether the first frames of a log belong to its header. A log that was cut and has grown again has zeros in between.
fn has_frames(log: &File, frames: u64, page: u64) -> io::Result<bool> {
    let salts = salts_at(log, LOG_SALTS)?;
    for frame in 0..frames {
        if salts_at(log, LOG_HEADER + frame * (FRAME_HEADER + page) + FRAME_SALTS)? != salts {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a log lacks its header, or the header of the frame that ended at `end`.
fn has_hole_before(log: &File, end: u64) -> io::Result<bool> {
    let mut header = [0; 12];
    log.read_exact_at(&mut header, 0)?;
    let [.., one, two, three, four] = header;
    let page = u64::from(u32::from_be_bytes([one, two, three, four]));
    if page == 0 {
        return Ok(true);
    }
    let last = end.checked_sub(FRAME_HEADER + page).filter(|start| *start >= LOG_HEADER);
    Ok(match last {
        Some(start) => salts_at(log, start + FRAME_SALTS)? == [0; 8],
        None => false,
    })
}

fn salts_at(log: &File, offset: u64) -> io::Result<[u8; 8]> {
    let mut salts = [0; 8];
    log.read_exact_at(&mut salts, offset)?;
    Ok(salts)
}

/// Whether a file of the database ends before what should be in it.
pub(crate) fn is_short_read(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

#[cfg(test)]
#[path = "cut_log_tests.rs"]
mod tests;
