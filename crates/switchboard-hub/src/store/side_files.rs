//! Side files of SQLite beside the database: write-ahead log, its index, and rollback journal.
//!
//! SQLite replays any log or journal beside a database, with pages of any content, so a planted one is equivalent to a
//! planted database. This module creates an empty log and index, and binds them before SQLite opens them. They are
//! retained for the life of the database. The database never has a rollback journal. Any other file under these names
//! is moved aside under a descriptive name, and SQLite never sees it.
//!
//! The binding of an empty log is on disk before the first page is written to the log, so a log with content of this
//! hub is always bound. An unbound empty log is left over from an interrupted start.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

use rusqlite::Connection;
use rustix::fs::{FlockOperation, RenameFlags};
use switchboard_sys::files::{Dir, Durability};

use crate::error::HubError;
use crate::store::binding::{self, BINDING, HubKey};
use crate::store::recover::{DATABASE, lock_exclusive_or, lock_shared, mark_suspect};

/// Name of the write-ahead log.
pub(crate) const LOG: &str = "hub.db-wal";

/// Name of the log's index, which is in shared memory.
pub(super) const INDEX: &str = "hub.db-shm";

/// Names of the side files that are bound.
pub(super) const SIDE_FILES: [&str; 2] = [LOG, INDEX];

/// Name of the rollback journal, which a WAL database does not have.
pub(super) const JOURNAL: &str = "hub.db-journal";

/// Refuses side files that are not bound to this user and machine.
///
/// Call this before and after SQLite opens the database, so that a replacement in between is detected before the first
/// page is read.
pub(crate) fn verify(folder: &Dir, key: Option<&HubKey>) -> Result<(), HubError> {
    let foreign = |name: &str| Err(HubError::ForeignSideFile { path: folder.path().join(name) });
    if folder.stat(JOURNAL)?.is_some() {
        return foreign(JOURNAL);
    }
    let Some(key) = key else { return Ok(()) };
    if binding::are_bound(folder, &SIDE_FILES, key)? {
        return Ok(());
    }
    for name in SIDE_FILES {
        if !binding::are_bound(folder, &[name], key)? {
            return foreign(name);
        }
    }
    Ok(())
}

/// Finds a planted side file, or returns `None` if there is none.
///
/// A file that is missing, empty or bound is not planted, and neither is an index that is a regular file.
pub(crate) fn find_planted(folder: &Dir, key: Option<&HubKey>) -> Result<Option<&'static str>, HubError> {
    if folder.stat(JOURNAL)?.is_some() {
        return Ok(Some(JOURNAL));
    }
    let Some(key) = key else { return Ok(None) };
    for name in SIDE_FILES {
        let is_harmless =
            folder.stat(name)?.is_none_or(|found| found.is_regular && (found.len == 0 || name == INDEX));
        if !is_harmless && !binding::are_bound(folder, &[name], key)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Result of a renewal of the side files.
#[derive(Debug, Default)]
pub(crate) struct Renewed {
    /// Paths to which planted files were moved.
    pub(crate) moved_aside: Vec<PathBuf>,
    /// True if a foreign log had replaced this hub's log, whose content is lost.
    pub(crate) lost_log: bool,
}

/// Renews foreign side files if no other process has the database open.
///
/// The caller downgrades the lock after it has checked the database, because other processes wait for the lock.
pub(crate) fn renew_exclusively(
    folder: &Dir,
    lock: &File,
    key: Option<&HubKey>,
) -> Result<Renewed, HubError> {
    if lock_exclusive_or(lock, || verify(folder, key).is_ok()).is_none() {
        return Err(match verify(folder, key) {
            Err(HubError::ForeignSideFile { path }) => HubError::SideFileInUse { path },
            // Another process has just resolved the problem, or `verify` reports a different error.
            verified => verified.err().unwrap_or(HubError::SideFileInUse { path: folder.path().join(LOG) }),
        });
    }
    renew_unless_in_use(folder, key).inspect_err(|_| lock_shared(lock))
}

fn renew_unless_in_use(folder: &Dir, key: Option<&HubKey>) -> Result<Renewed, HubError> {
    let Err(HubError::ForeignSideFile { path }) = verify(folder, key) else {
        // Another process was first, or there is a different error, which the next step reports.
        return Ok(Renewed::default());
    };
    // `hub.lock` may have been replaced as well, so the database itself is locked too; each open connection holds a
    // lock on it.
    let database = folder.open_own(DATABASE)?;
    rustix::fs::fcntl_lock(&database, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| HubError::SideFileInUse { path })?;
    // A database that lost its log may be in the middle of a checkpoint.
    mark_suspect(folder);
    let renewed = renew(folder, key)?;
    for aside in &renewed.moved_aside {
        tracing::warn!(file = %aside.display(), "a file beside the database did not belong to it and was moved aside");
    }
    Ok(renewed)
}

/// Renews foreign side files: moves them aside and binds new ones.
///
/// The database must be bound, and no process may have it open.
pub(super) fn renew(folder: &Dir, key: Option<&HubKey>) -> Result<Renewed, HubError> {
    let mut renewed = Renewed::default();
    renewed.moved_aside.extend(move_aside(folder, JOURNAL)?);
    let Some(key) = key else { return Ok(renewed) };
    for name in SIDE_FILES {
        if binding::are_bound(folder, &[name], key)? {
            continue;
        }
        let aside = move_aside(folder, name)?;
        renewed.lost_log |= name == LOG && aside.is_some();
        renewed.moved_aside.extend(aside);
        folder.create_new(name, b"", Durability::Synced)?;
        chown_to_database_owner(folder, name)?;
    }
    binding::bind_side_files(folder, &SIDE_FILES, key)?;
    chown_to_database_owner(folder, BINDING)?;
    Ok(renewed)
}

/// Changes the owner of a file that root created to the owner of the database.
///
/// Under `sudo`, SQLite does the same with the files that it creates.
fn chown_to_database_owner(folder: &Dir, name: &str) -> Result<(), HubError> {
    let Some(database) = folder.stat(DATABASE)?.filter(|_| rustix::process::geteuid().is_root()) else {
        return Ok(());
    };
    std::os::unix::fs::lchown(folder.path().join(name), Some(database.uid), None)
        .map_err(folder.io_error("set the owner of", name))?;
    Ok(())
}

/// Moves a file, symbolic link or folder aside and returns its new path. An empty file is removed instead.
pub(super) fn move_aside(folder: &Dir, name: &str) -> Result<Option<PathBuf>, HubError> {
    let Some(found) = folder.stat(name)? else { return Ok(None) };
    if found.is_regular && found.len == 0 {
        folder.remove(name)?;
        return Ok(None);
    }
    let aside = format!("{name}.foreign.{:08x}", fastrand::u32(..));
    // A rename moves a symbolic link or a folder unchanged.
    rustix::fs::renameat_with(folder.as_fd(), name, folder.as_fd(), &*aside, RenameFlags::empty())
        .map_err(folder.io_error("move", name))?;
    Ok(Some(folder.path().join(aside)))
}

/// Lists the names of side files that were moved aside.
pub(crate) fn list(folder: &Dir) -> Result<Vec<String>, HubError> {
    let is_one = |name: &String| {
        [LOG, INDEX, JOURNAL]
            .iter()
            .any(|side_file| name.strip_prefix(side_file).is_some_and(|rest| rest.starts_with(".foreign.")))
    };
    Ok(folder.names()?.into_iter().filter(is_one).collect())
}

/// Watch that detects when the log of an open database was replaced or removed.
#[derive(Debug)]
pub(super) struct WalWatch {
    path: PathBuf,
    opened: Option<(u64, u64, Option<SystemTime>)>,
}

impl WalWatch {
    /// Records the current log as the one to watch.
    pub(super) fn start(path: PathBuf) -> Self {
        Self { opened: identify(&path), path }
    }

    /// Checkpoints the database if its log was replaced or removed.
    ///
    /// The content of an unlinked log is lost with the last process that has it open, so without the checkpoint no
    /// sender may be told "on disk".
    pub(super) fn checkpoint_if_displaced(&self, db: &Connection) -> rusqlite::Result<()> {
        if self.opened.is_none() || identify(&self.path) == self.opened {
            return Ok(());
        }
        tracing::warn!(log = %self.path.display(), "the log was replaced or removed; each commit is written through");
        db.pragma_update(None, "synchronous", "FULL")?;
        let (busy, pages, done): (bool, i64, i64) =
            db.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        if busy || done < pages {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            return Err(rusqlite::Error::SqliteFailure(code, None));
        }
        Ok(())
    }
}

fn identify(path: &std::path::Path) -> Option<(u64, u64, Option<SystemTime>)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.created().ok()))
}

#[cfg(test)]
#[path = "side_files_tests.rs"]
mod tests;
