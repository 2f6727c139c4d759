//! State of one open store that the writer, the readers and the hub share.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use switchboard_sys::files::Dir;
use tokio::sync::Notify;

use crate::store::database_file::DatabaseFile;
use crate::store::readers::Readers;

/// Store that this process has open.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) database_file: DatabaseFile,
    pub(crate) readers: Readers,
    /// Lock that is held shared while the store is open: see `recover`.
    ///
    /// `None` if the lock file could not even be created.
    pub(crate) lock: Option<File>,
    /// True from a recovery until the doors have consumed it.
    was_recovered: AtomicBool,
    recovered: Notify,
    /// True from a recovery until the doors have read their files back.
    is_rebuilding: AtomicBool,
    /// True if a read or a write encountered damage that may be in the log.
    is_log_suspect: AtomicBool,
}

impl OpenStore {
    pub(crate) fn new(folder: &Dir, readers: Readers, lock: Option<File>) -> Self {
        Self {
            database_file: DatabaseFile::of(folder),
            readers,
            lock,
            was_recovered: AtomicBool::default(),
            recovered: Notify::new(),
            is_rebuilding: AtomicBool::default(),
            is_log_suspect: AtomicBool::default(),
        }
    }

    /// Records a recovery, so that the doors read their files back.
    ///
    /// Data may be missing after a recovery.
    pub(crate) fn note_recovery(&self) {
        self.is_rebuilding.store(true, Ordering::Release);
        self.was_recovered.store(true, Ordering::Release);
        self.recovered.notify_one();
    }

    /// Returns true once after each recovery of the store.
    pub(crate) fn consume_recovery(&self) -> bool {
        self.was_recovered.swap(false, Ordering::AcqRel)
    }

    /// Waits for a recovery of the store.
    pub(crate) async fn wait_for_recovery(&self) {
        self.recovered.notified().await;
    }

    /// Returns true while agents and messages may be missing after a recovery.
    ///
    /// The doors still read their files back.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.is_rebuilding.load(Ordering::Acquire)
    }

    /// Records that the doors have read their files back.
    pub(crate) fn end_rebuild(&self) {
        self.is_rebuilding.store(false, Ordering::Release);
    }

    /// Makes the writer verify the whole log before its next transaction.
    pub(crate) fn suspect_log(&self) {
        self.is_log_suspect.store(true, Ordering::Release);
    }

    /// Returns true once if the log has to be verified.
    pub(crate) fn consume_suspicion(&self) -> bool {
        self.is_log_suspect.swap(false, Ordering::AcqRel)
    }
}
