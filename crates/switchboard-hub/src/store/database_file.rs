//! Detection of a deleted or replaced database file.
//!
//! A process can continue to write to a deleted file, but all of that data is lost when the process ends. The path is
//! therefore compared with the opened file after the sync and before a sender is told that its message was accepted.
//! The folder is held open: if it was moved, its database moved along and nothing is lost.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use switchboard_sys::files::Dir;
use switchboard_sys::platform;

use crate::error::HubError;
use crate::store::recover::DATABASE;

/// Database file of an open store.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    folder: Dir,
    /// Inode of the opened file; `None` if the file did not exist.
    opened: Mutex<Option<u64>>,
    /// True if inode numbers are stable on this file system.
    has_stable_inodes: bool,
    is_deleted: AtomicBool,
}

impl DatabaseFile {
    /// Records the current database file.
    pub(crate) fn of(folder: &Dir) -> Self {
        let opened = Mutex::new(inode(folder).ok().flatten());
        let has_stable_inodes = platform::has_stable_inodes(folder.path());
        Self { folder: folder.clone(), opened, has_stable_inodes, is_deleted: AtomicBool::new(false) }
    }

    /// Fails if the database was deleted or replaced.
    pub(crate) fn check(&self) -> Result<(), HubError> {
        if self.is_deleted.load(Ordering::Relaxed) {
            return Err(self.deleted_error());
        }
        let opened = *self.opened.lock();
        // A failed `stat` does not prove that the file was deleted.
        let Ok(found) = inode(&self.folder) else { return Ok(()) };
        let is_there = if self.has_stable_inodes { found == opened } else { found.is_some() };
        if is_there || opened.is_none() {
            return Ok(());
        }
        if !self.is_deleted.swap(true, Ordering::Relaxed) {
            tracing::error!(database = %self.folder.path().join(DATABASE).display(), "the store was deleted");
        }
        Err(self.deleted_error())
    }

    /// Records a database file that this process itself has put in place.
    pub(crate) fn refresh(&self) {
        *self.opened.lock() = inode(&self.folder).ok().flatten();
    }

    fn deleted_error(&self) -> HubError {
        HubError::StoreDeleted { path: self.folder.path().join(DATABASE) }
    }
}

fn inode(folder: &Dir) -> Result<Option<u64>, HubError> {
    Ok(folder.stat(DATABASE)?.map(|found| found.inode))
}

#[cfg(test)]
#[path = "database_file_tests.rs"]
mod tests;
