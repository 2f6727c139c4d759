//! What the writer, the readers and the handle share of one open store.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::files::Dir;
use crate::store::in_place::StorePlace;
use crate::store::readers::Readers;

/// A store that this process has open.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) place: StorePlace,
    pub(crate) readers: Readers,
    /// Held shared for as long as the store is open: see `recover`. None where it could not even be made.
    pub(crate) lock: Option<File>,
    was_recovered: AtomicBool,
}

impl OpenStore {
    pub(crate) fn new(folder: &Dir, readers: Readers, lock: Option<File>) -> Self {
        Self { place: StorePlace::of(folder), readers, lock, was_recovered: AtomicBool::new(false) }
    }

    /// Notes that something may have been lost, so that doors read back what their files hold.
    pub(crate) fn note_recovery(&self) {
        self.was_recovered.store(true, Ordering::Release);
    }

    /// Whether something was recovered since this was last asked.
    pub(crate) fn take_recovery(&self) -> bool {
        self.was_recovered.swap(false, Ordering::AcqRel)
    }
}
