//! The files that this process puts into mailboxes itself.
//!
//! Whoever watches the mailboxes hears of them as of everybody else's, and they are no reason to look: what they
//! hold came out of the journal.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Most files whose event is still to come. Beyond that they are forgotten, and their events are hints like any
/// other: a look too many, and never one too few.
const MOST: usize = 1024;

/// Files of ours whose event is still to come. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnFiles {
    /// Only filled while somebody listens to the events, who takes them out again.
    awaited: Arc<Mutex<Option<HashSet<PathBuf>>>>,
}

impl OwnFiles {
    /// From now on events are listened to.
    pub(crate) fn listen(&self) {
        self.awaited.lock().get_or_insert_default();
    }

    /// Notes a file that is about to appear.
    pub(crate) fn expect(&self, file: PathBuf) {
        if let Some(awaited) = self.awaited.lock().as_mut() {
            if awaited.len() >= MOST {
                awaited.clear();
            }
            awaited.insert(file);
        }
    }

    /// Whether the event of a file's appearance is one that was awaited. It is awaited once.
    pub(crate) fn is_awaited(&self, file: &Path) -> bool {
        self.awaited.lock().as_mut().is_some_and(|awaited| awaited.remove(file))
    }
}

#[cfg(test)]
#[path = "own_files_tests.rs"]
mod tests;
