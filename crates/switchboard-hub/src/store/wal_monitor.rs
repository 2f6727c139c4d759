//! WAL monitor: recovers from a write-ahead log that another program truncated or overwrote while it was in use.
//!
//! SQLite does not detect this: the index of the log still names missing frames, reads of them fail, and new frames are
//! written behind a gap that no recovery gets past. The header and the last frame of the log are therefore examined
//! before each transaction and after each commit. All frames are examined if the log changed without a commit, or if a
//! read met damage. If a frame is missing, this process closes all its connections and reopens the database as after a
//! crash, with the rest of the log. The doors read lost messages back from their files. If the index was removed, it is
//! rebuilt in the same way, without loss.

use rusqlite::Connection;
use switchboard_sys::platform;

use crate::error::{HubError, is_damage};
use crate::journal::maintenance;
use crate::store::commit::{Committer, not_on_disk};
use crate::store::recover::{self, DATABASE, lock_exclusive_or, lock_shared};
use crate::store::side_files::{self, INDEX};
use crate::store::wal_frames::{Salts, WalFile, WalFingerprint};
use crate::store::writer::{PostCommit, Setup};

/// Maximum number of attempts until log and index agree.
///
/// Another process may restart the log between the reads of the index and of the log, but not each time.
const MAX_TRIES: usize = 3;

/// Monitor that detects missing frames of the log and recovers the store.
#[derive(Debug)]
pub(crate) struct WalMonitor {
    name: String,
    log: Option<WalFile>,
    /// Inode of the log's index.
    index: Option<u64>,
    seen: Option<WalState>,
    /// Number of the last entry that this process appended to the journal.
    last_seq: i64,
    fault: Option<WalFault>,
}

/// State of the log when it was last examined.
#[derive(Debug, Clone, Copy)]
struct WalState {
    frames: u64,
    salts: Salts,
    fingerprint: WalFingerprint,
}

/// Damage to the log by another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalFault {
    /// Frames of the log are missing.
    Frames,
    /// The index of the log was removed or replaced.
    Index,
}

impl WalMonitor {
    /// Starts to monitor the current log.
    pub(crate) fn start(setup: &Setup) -> Self {
        let name = setup.log_name();
        let log = setup.folder.open_existing(&name).ok().flatten().map(WalFile::new);
        Self { name, log, index: find_index(setup), seen: None, last_seq: 0, fault: None }
    }

    /// Records a commit of this process.
    ///
    /// Fails if the log was damaged during the transaction, because the commit is then behind a gap.
    pub(crate) fn record_commit(
        &mut self,
        db: &Connection,
        setup: &Setup,
        after: &PostCommit,
    ) -> rusqlite::Result<()> {
        self.last_seq = after.appended.last().map_or(self.last_seq, |entry| entry.seq.max(self.last_seq));
        if !after.changed {
            return Ok(());
        }
        let before = self.seen.take();
        if self.examine(db, false, before)? {
            return Ok(());
        }
        self.note_fault(setup, WalFault::Frames);
        Err(not_on_disk("the write-ahead log was truncated or overwritten"))
    }

    fn note_fault(&mut self, setup: &Setup, fault: WalFault) {
        let log = &self.name;
        match fault {
            WalFault::Frames => {
                tracing::error!(log, "the log was truncated or overwritten while in use; recovering it");
                // If this process ends before the recovery, the next process that opens the store recovers it.
                recover::mark_suspect(&setup.folder);
            }
            WalFault::Index => tracing::error!(log, "the index of the log was removed; it is rebuilt"),
        }
        self.fault = Some(fault);
    }

    /// Recovers the store if its log was damaged.
    ///
    /// Returns true if the store was recovered, so that all caches are invalid. Fails if the recovery has to be
    /// retried; until then nothing can be written.
    pub(crate) fn check(
        &mut self,
        connection: &mut Connection,
        setup: &Setup,
        finisher: &Committer,
    ) -> Result<bool, HubError> {
        if self.fault.is_none() {
            let Some(fault) = self.find_fault(connection, setup)? else { return Ok(false) };
            self.note_fault(setup, fault);
            let last = connection.query_row("SELECT max(seq) FROM messages", [], |row| row.get(0));
            self.last_seq = last.unwrap_or(0).max(self.last_seq);
        }
        // A deleted database must not be created again.
        setup.store.database_file.check()?;
        finisher.close_log();
        // All connections have to be closed first, because the connections of a process share the index of the log.
        *connection = Connection::open_in_memory()?;
        *connection = setup.store.readers.while_closed(|| self.reopen(setup))?;
        *self = Self { last_seq: self.last_seq, ..Self::start(setup) };
        setup.store.database_file.refresh();
        setup.store.note_recovery();
        tracing::warn!(log = self.name, "the store continues; messages of the log are read from files");
        Ok(true)
    }

    /// Examines the log for the last time.
    ///
    /// If it is damaged, the database is marked, so that the next process that opens the store recovers it.
    pub(crate) fn finish(mut self, db: &Connection, setup: &Setup) {
        if self.fault.is_none() && matches!(self.find_fault(db, setup), Ok(Some(WalFault::Frames))) {
            self.note_fault(setup, WalFault::Frames);
        }
    }

    fn find_fault(&mut self, db: &Connection, setup: &Setup) -> Result<Option<WalFault>, HubError> {
        let index = find_index(setup);
        let is_gone = match (self.index, index) {
            (Some(opened), Some(found)) => {
                opened != found && platform::has_stable_inodes(setup.folder.path())
            }
            (opened, found) => opened.is_some() && found.is_none(),
        };
        if self.log.is_none() {
            self.log = setup.folder.open_existing(&self.name)?.map(WalFile::new);
        }
        // If the log was replaced too, `WalWatch` handles it: its frames are no longer reachable by path, and would be
        // lost.
        if is_gone && self.is_log_current(setup) {
            return Ok(Some(WalFault::Index));
        }
        self.index = index;
        let is_thorough = setup.store.consume_suspicion();
        if !is_thorough && self.is_untouched() {
            return Ok(None);
        }
        Ok((!self.examine(db, is_thorough, None)?).then_some(WalFault::Frames))
    }

    fn is_log_current(&self, setup: &Setup) -> bool {
        let found = setup.folder.stat(&self.name).ok().flatten().map(|found| found.inode);
        found.is_some() && found == self.log.as_ref().and_then(WalFile::inode)
    }

    /// Returns true if the log is unchanged since it was last examined.
    ///
    /// The check avoids a query of the index, which costs more than a small transaction.
    fn is_untouched(&self) -> bool {
        let fingerprint = self.log.as_ref().and_then(|log| log.fingerprint().ok());
        fingerprint.is_some() && fingerprint == self.seen.map(|seen| seen.fingerprint)
    }

    /// Returns true if no frame is missing from the log.
    ///
    /// Examines the last frame, and the last frame from `before` a commit. All frames are verified if `is_thorough` is
    /// set, or if the log changed without a commit.
    fn examine(
        &mut self,
        db: &Connection,
        is_thorough: bool,
        before: Option<WalState>,
    ) -> rusqlite::Result<bool> {
        let Some(log) = &self.log else { return Ok(true) };
        for _ in 0..MAX_TRIES {
            let frames = match count_frames(db) {
                Err(error) if is_damage(&error) || is_short_read(&error) => return Ok(false),
                frames => frames?,
            };
            if frames == 0 {
                self.seen = None;
                return Ok(true);
            }
            // A failed read does not prove that frames are missing.
            let Ok(run) = log.run() else { return Ok(true) };
            let Some(run) = run else { continue };
            let now = WalState { frames, salts: run.salts(), fingerprint: run.fingerprint() };
            let has = |frames| run.has_frame(frames).unwrap_or(true);
            // If the log has restarted, its earlier frames are already in the database.
            let is_same_run =
                |before: &WalState| before.salts == now.salts && (1..=now.frames).contains(&before.frames);
            if !has(frames) || before.filter(is_same_run).is_some_and(|before| !has(before.frames)) {
                continue;
            }
            let is_changed = self.seen.is_some_and(|seen| {
                (seen.frames, seen.salts) == (now.frames, now.salts)
                    && seen.fingerprint.1 != now.fingerprint.1
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
            Some(WalFault::Index) => HubError::SideFileInUse { path: setup.folder.path().join(INDEX) },
            _ => HubError::DamagedInUse { path: setup.folder.path().join(DATABASE) },
        };
        let lock = setup.store.lock.as_ref().ok_or_else(in_use)?;
        // Another process may have rebuilt the index while this process had no connection open.
        let has_index =
            || self.fault == Some(WalFault::Index) && side_files::verify(&setup.folder, key).is_ok();
        let opened = match lock_exclusive_or(lock, has_index) {
            Some(()) => {
                if self.fault == Some(WalFault::Frames) {
                    recover::mark_suspect(&setup.folder);
                }
                recover::open_or_recover(&setup.folder, lock, key)
            }
            None => Err(in_use()),
        };
        lock_shared(lock);
        let connection = opened?.connection;
        maintenance::forget_rebuilt(&connection)?;
        // Numbers of lost messages are not assigned again, because a reader that has seen them continues after them.
        connection.execute(
            "INSERT INTO meta (key, value) VALUES ('floor', ?1) ON CONFLICT (key) \
             DO UPDATE SET value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))",
            [self.last_seq.to_string()],
        )?;
        Ok(connection)
    }
}

/// Returns the inode of the log's index.
fn find_index(setup: &Setup) -> Option<u64> {
    setup.folder.stat(INDEX).ok().flatten().map(|found| found.inode)
}

/// Counts the committed frames of the log, according to its index.
fn count_frames(db: &Connection) -> rusqlite::Result<u64> {
    let frames: i64 = db.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?.query_row([], |row| row.get(1))?;
    Ok(u64::try_from(frames).unwrap_or_default())
}

/// Returns true if a read failed because the database file ends too early.
pub(crate) fn is_short_read(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

#[cfg(test)]
#[path = "wal_monitor_tests.rs"]
mod tests;
