//! Suppresses file events that this process causes by its own deliveries.
//!
//! The watcher reports them like the events of other processes. They need no scan, because the content of the files
//! came from the journal.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of files with a pending event.
///
/// At the limit, all entries are dropped. Their events then cause an unnecessary scan, but no scan is missed.
const MAX_EXPECTED: usize = 1024;

/// Files that this process wrote and whose events are pending. Clones share the same set.
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

    /// Records a file that this process is about to create.
    pub(crate) fn expect(&self, file: PathBuf) {
        if let Some(expected_files) = self.expected_files.lock().as_mut() {
            if expected_files.len() >= MAX_EXPECTED {
                expected_files.clear();
            }
            expected_files.insert(file);
        }
    }

    /// Removes an expected file and returns true if the file was expected.
    ///
    /// A second event for the same file returns false.
    pub(crate) fn remove_expected(&self, file: &Path) -> bool {
        self.expected_files.lock().as_mut().is_some_and(|expected_files| expected_files.remove(file))
    }
}

#[cfg(test)]
#[path = "own_files_tests.rs"]
mod tests;
