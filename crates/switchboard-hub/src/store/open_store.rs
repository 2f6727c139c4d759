//! What the writer, the readers and the handle share of one open store.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use switchboard_sys::files::Dir;
use tokio::sync::Notify;

use crate::store::in_place::StorePlace;
use crate::store::readers::Readers;

/// A store that this process has open.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) place: StorePlace,
    pub(crate) readers: Readers,
    /// Held shared for as long as the store is open: see `recover`. None where it could not even be made.
    pub(crate) lock: Option<File>,
    /// True from a recovery until doors are told of it.
    was_recovered: AtomicBool,
    recovered: Notify,
    /// True from a recovery until the doors have read back what their files hold.
    is_rebuilding: AtomicBool,
    /// True if a read or a write met damage that may be in the log.
    is_log_suspect: AtomicBool,
}

impl OpenStore {
    pub(crate) fn new(folder: &Dir, readers: Readers, lock: Option<File>) -> Self {
        Self {
            place: StorePlace::of(folder),
            readers,
            lock,
            was_recovered: AtomicBool::default(),
            recovered: Notify::new(),
            is_rebuilding: AtomicBool::default(),
            is_log_suspect: AtomicBool::default(),
        }
    }

    /// Notes that something may have been lost, so that doors read back what their files hold.
    pub(crate) fn note_recovery(&self) {
        self.is_rebuilding.store(true, Ordering::Release);
        self.was_recovered.store(true, Ordering::Release);
        self.recovered.notify_one();
    }

    /// Whether something was recovered since this was last asked.
    pub(crate) fn consume_recovery(&self) -> bool {
        self.was_recovered.swap(false, Ordering::AcqRel)
    }

    /// Returns once something was recovered.
    pub(crate) async fn wait_for_recovery(&self) {
        self.recovered.notified().await;
    }

    /// True while agents and messages may be missing that are read back from files.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.is_rebuilding.load(Ordering::Acquire)
    }

    /// Notes that the doors have read back what their files hold.
    pub(crate) fn end_rebuild(&self) {
        self.is_rebuilding.store(false, Ordering::Release);
    }

    /// Has the writer verify the whole log before its next transaction.
    pub(crate) fn suspect_log(&self) {
        self.is_log_suspect.store(true, Ordering::Release);
    }

    /// Whether the log is to be verified.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_log_suspect.swap(false, Ordering::AcqRel)
    }
}
