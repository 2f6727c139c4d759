//! Recovery from a write-ahead log that another program cut or overwrote while it was in use.
//!
//! SQLite does not notice: the index of the log still names frames that are gone, reads of them fail, and further frames are
//! written behind a hole that no recovery gets past. So the header and the last frame of the log are examined before each
//! transaction and after each commit, and all frames where the log changed without a commit or a read has met damage. Where
//! a frame is gone, all connections of this process are closed, and the database is opened as after a crash, with what is
//! left of the log. The doors read back what their files hold of the rest. An index that was removed is made again in the
//! same way, and nothing is lost then.

use rusqlite::Connection;
use switchboard_sys::platform;

use crate::error::{HubError, is_damage};
use crate::maintenance;
use crate::store::finish::{Finisher, not_on_disk};
use crate::store::log_frames::{LogFile, LogStamp, Salts};
use crate::store::recover::{self, DATABASE, alone_or, share};
use crate::store::side_files::{self, INDEX};
use crate::store::writer::{After, Setup};

/// How often the log is looked at until the index agrees: another process may begin the log again between the look at
/// the index and that at the log, but not each time.
const LOOKS: usize = 3;

/// Watches that the log keeps its frames.
#[derive(Debug)]
pub(crate) struct LogMonitor {
    name: String,
    log: Option<LogFile>,
    /// Inode of the index.
    index: Option<u64>,
    seen: Option<LogState>,
    /// The last entry that this process wrote into the journal.
    last_seq: i64,
    fault: Option<LogFault>,
}

/// The log as it was last seen.
#[derive(Debug, Clone, Copy)]
struct LogState {
    frames: u64,
    salts: Salts,
    stamp: LogStamp,
}

/// Damage that another program did to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogFault {
    /// Frames are gone.
    Frames,
    /// The index of the log was removed or replaced.
    Index,
}

impl LogMonitor {
    /// The log as it is now.
    pub(crate) fn begin(setup: &Setup) -> Self {
        let name = setup.log_name();
        let log = setup.folder.open_existing(&name).ok().flatten().map(LogFile::new);
        Self { name, log, index: find_index(setup), seen: None, last_seq: 0, fault: None }
    }

    /// Notes a commit of this process. Fails where the log was damaged during the transaction: then the commit is behind
    /// a hole.
    pub(crate) fn note(&mut self, db: &Connection, setup: &Setup, after: &After) -> rusqlite::Result<()> {
        self.last_seq = after.appended.last().map_or(self.last_seq, |entry| entry.seq.max(self.last_seq));
        if !after.changed {
            return Ok(());
        }
        let before = self.seen.take();
        if self.examine(db, false, before)? {
            return Ok(());
        }
        self.note_fault(setup, LogFault::Frames);
        Err(not_on_disk("the write-ahead log was cut or overwritten"))
    }

    fn note_fault(&mut self, setup: &Setup, fault: LogFault) {
        let log = &self.name;
        match fault {
            LogFault::Frames => {
                tracing::error!(log, "the log was cut or overwritten while it was in use; it is recovered");
                // Should this process end before, the next one recovers it.
                recover::mark_suspect(&setup.folder);
            }
            LogFault::Index => tracing::error!(log, "the index of the log was removed; it is made again"),
        }
        self.fault = Some(fault);
    }

    /// Recovers the store where its log was damaged. Says whether it did: nothing that was remembered holds then. Fails
    /// where it must be tried again, and then nothing can be written.
    pub(crate) fn check(
        &mut self,
        connection: &mut Connection,
        setup: &Setup,
        finisher: &Finisher,
    ) -> Result<bool, HubError> {
        if self.fault.is_none() {
            let Some(fault) = self.find_fault(connection, setup)? else { return Ok(false) };
            self.note_fault(setup, fault);
            let last = connection.query_row("SELECT max(seq) FROM messages", [], |row| row.get(0));
            self.last_seq = last.unwrap_or(0).max(self.last_seq);
        }
        // A store that was deleted is not made again.
        setup.store.place.check()?;
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

    /// Examines the log for the last time: the next process to open the store recovers it.
    pub(crate) fn end(mut self, db: &Connection, setup: &Setup) {
        if self.fault.is_none() && matches!(self.find_fault(db, setup), Ok(Some(LogFault::Frames))) {
            self.note_fault(setup, LogFault::Frames);
        }
    }

    fn find_fault(&mut self, db: &Connection, setup: &Setup) -> Result<Option<LogFault>, HubError> {
        let index = find_index(setup);
        let is_gone = match (self.index, index) {
            (Some(opened), Some(found)) => {
                opened != found && platform::has_stable_inodes(setup.folder.path())
            }
            (opened, found) => opened.is_some() && found.is_none(),
        };
        if self.log.is_none() {
            self.log = setup.folder.open_existing(&self.name)?.map(LogFile::new);
        }
        // A log that was replaced as well is the matter of `LogWatch`: its frames are on no path any more, and would be lost.
        if is_gone && self.is_log_in_place(setup) {
            return Ok(Some(LogFault::Index));
        }
        self.index = index;
        let is_thorough = setup.store.take_suspicion();
        if !is_thorough && self.is_untouched() {
            return Ok(None);
        }
        Ok((!self.examine(db, is_thorough, None)?).then_some(LogFault::Frames))
    }

    fn is_log_in_place(&self, setup: &Setup) -> bool {
        let found = setup.folder.stat(&self.name).ok().flatten().map(|found| found.inode);
        found.is_some() && found == self.log.as_ref().and_then(LogFile::inode)
    }

    /// Whether the log is as it was last seen. To ask the index costs more than a small transaction.
    fn is_untouched(&self) -> bool {
        let stamp = self.log.as_ref().and_then(|log| log.stamp().ok());
        stamp.is_some() && stamp == self.seen.map(|seen| seen.stamp)
    }

    /// Whether the log has its last frame, and the last one from `before` a commit; all frames where `is_thorough` or where the
    /// log has changed without a commit.
    fn examine(
        &mut self,
        db: &Connection,
        is_thorough: bool,
        before: Option<LogState>,
    ) -> rusqlite::Result<bool> {
        let Some(log) = &self.log else { return Ok(true) };
        for _ in 0..LOOKS {
            let frames = match count_frames(db) {
                Err(error) if is_damage(&error) || is_short_read(&error) => return Ok(false),
                frames => frames?,
            };
            if frames == 0 {
                self.seen = None;
                return Ok(true);
            }
            // A look that fails says nothing.
            let Ok(run) = log.run() else { return Ok(true) };
            let Some(run) = run else { continue };
            let now = LogState { frames, salts: run.salts(), stamp: run.stamp() };
            let has = |frames| run.has_frame(frames).unwrap_or(true);
            // In a log that began again, the frames before are in the database.
            let is_same_run =
                |before: &LogState| before.salts == now.salts && (1..=now.frames).contains(&before.frames);
            if !has(frames) || before.filter(is_same_run).is_some_and(|before| !has(before.frames)) {
                continue;
            }
            let is_changed = self.seen.is_some_and(|seen| {
                (seen.frames, seen.salts) == (now.frames, now.salts) && seen.stamp.1 != now.stamp.1
            });
            if (is_thorough || is_changed) && !log.verify(frames).unwrap_or(true) {
                continue;
            }
            self.seen = Some(now);
            return Ok(true);
        }
        Ok(false)
    }

    fn reopen(&self, setup: &Setup) -> Result<Connection, HubError> {
        let key = setup.config.key.as_ref();
        let in_use = || match self.fault {
            Some(LogFault::Index) => HubError::SideFileInUse { path: setup.folder.path().join(INDEX) },
            _ => HubError::DamagedInUse { path: setup.folder.path().join(DATABASE) },
        };
        let lock = setup.store.lock.as_ref().ok_or_else(in_use)?;
        // Another process may make the index again while this one has none open.
        let has_index =
            || self.fault == Some(LogFault::Index) && side_files::verify(&setup.folder, key).is_ok();
        let opened = match alone_or(lock, has_index) {
            Some(()) => {
                if self.fault == Some(LogFault::Frames) {
                    recover::mark_suspect(&setup.folder);
                }
                recover::open_or_recover(&setup.folder, lock, key)
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

/// Inode of the index of the log.
fn find_index(setup: &Setup) -> Option<u64> {
    setup.folder.stat(INDEX).ok().flatten().map(|found| found.inode)
}

/// Committed frames of the log, as its index tells.
fn count_frames(db: &Connection) -> rusqlite::Result<u64> {
    let frames: i64 = db.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?.query_row([], |row| row.get(1))?;
    Ok(u64::try_from(frames).unwrap_or_default())
}

/// Whether a file of the database ends before what should be in it.
pub(crate) fn is_short_read(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

#[cfg(test)]
#[path = "cut_log_tests.rs"]
mod tests;
