//! Suppresses file events that this process causes by its own deliveries.
//!
//! The watcher reports them like those of other processes. They need no scan, because the files' content came from the
//! journal.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Most files whose event is pending. At the limit all are dropped, and their events cause a scan: one too many, never
/// one too few.
const MAX_EXPECTED: usize = 1024;

/// Files of ours whose event is pending. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnFiles {
    /// `None` until a watcher runs, because only a watcher removes entries.
    expected_files: Arc<Mutex<Option<HashSet<PathBuf>>>>,
}

impl OwnFiles {
    /// Starts recording expected files; called by the watcher.
    pub(crate) fn start_recording(&self) {
        self.expected_files.lock().get_or_insert_default();
    }

    /// Records a file that is about to appear.
    pub(crate) fn expect(&self, file: PathBuf) {
        if let Some(expected_files) = self.expected_files.lock().as_mut() {
            if expected_files.len() >= MAX_EXPECTED {
                expected_files.clear();
            }
            expected_files.insert(file);
        }
    }

    /// Returns true, once, if the event of a new file was expected.
    pub(crate) fn remove_expected(&self, file: &Path) -> bool {
        self.expected_files.lock().as_mut().is_some_and(|expected_files| expected_files.remove(file))
    }
}

#[cfg(test)]
#[path = "own_files_tests.rs"]
mod tests;
