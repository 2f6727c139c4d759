//! Whether an open database is still the file that its path leads to.
//!
//! A process goes on writing to a file that was deleted, and everything in it is gone when the process ends. So the path is
//! compared with the file that was opened, after the wait for the disk and before a sender is told "accepted". The folder
//! is held open: one that was moved takes its database along, and nothing is lost then.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use switchboard_sys::files::Dir;
use switchboard_sys::platform;

use crate::error::HubError;
use crate::store::recover::DATABASE;

/// The database file of an open store.
#[derive(Debug)]
pub(crate) struct StorePlace {
    folder: Dir,
    /// Its inode; none where it was not there.
    opened: Mutex<Option<u64>>,
    /// Whether a file keeps its inode number for as long as it is there.
    has_numbers: bool,
    is_gone: AtomicBool,
}

impl StorePlace {
    /// The database as it is now.
    pub(crate) fn of(folder: &Dir) -> Self {
        let opened = Mutex::new(inode(folder).ok().flatten());
        let has_numbers = platform::has_stable_inodes(folder.path());
        Self { folder: folder.clone(), opened, has_numbers, is_gone: AtomicBool::new(false) }
    }

    /// Fails where the database was deleted, or where another file is in its place.
    pub(crate) fn check(&self) -> Result<(), HubError> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(self.gone());
        }
        let opened = *self.opened.lock();
        // A look that fails says nothing.
        let Ok(found) = inode(&self.folder) else { return Ok(()) };
        let is_there = if self.has_numbers { found == opened } else { found.is_some() };
        if is_there || opened.is_none() {
            return Ok(());
        }
        if !self.is_gone.swap(true, Ordering::Relaxed) {
            tracing::error!(database = %self.folder.path().join(DATABASE).display(), "the store was deleted");
        }
        Err(self.gone())
    }

    /// Takes a database for its own that this process has put in the place of the one before.
    pub(crate) fn renew(&self) {
        *self.opened.lock() = inode(&self.folder).ok().flatten();
    }

    fn gone(&self) -> HubError {
        HubError::StoreDeleted { path: self.folder.path().join(DATABASE) }
    }
}

fn inode(folder: &Dir) -> Result<Option<u64>, HubError> {
    Ok(folder.stat(DATABASE)?.map(|found| found.inode))
}

#[cfg(test)]
#[path = "in_place_tests.rs"]
mod tests;
