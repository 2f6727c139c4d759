//! File watcher: reports changes of files and folders, and where polling is needed as well.
//!
//! An event is only a hint. The caller scans after each event and also polls. It polls seldom where every change of a
//! local disk causes an event, and often where [`poll_reason`] returns a reason.
//! [`Debouncer`](crate::debounce::Debouncer) merges the events of one change.

mod event;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;

use crate::platform::{self, Filesystem};

pub use self::event::{ChangeKind, FileChange, FileEvent};

/// Error of setting a watch, such as a missing folder or the system's limit on watches.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WatchError(#[from] notify::Error);

/// How much of a folder is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The folder and its direct entries, or a single file.
    Folder,
    /// The folder and everything below it.
    Tree,
}

/// Reason to poll a folder, even if the folder is also watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PollReason {
    /// Other machines can change the folder, and their changes cause no event here.
    #[error("it is on a network mount")]
    Network,
    /// It is unknown whether other machines can change the folder without an event.
    #[error("its file system is not known to report every change")]
    UnknownFilesystem,
    /// The system refused the watch.
    #[error("no file watch can be set on it")]
    NoWatch,
}

/// Returns the reason to poll a folder, or `None` if each change of the folder causes an event.
pub fn poll_reason(folder: &Path, is_watched: bool) -> Option<PollReason> {
    choose_poll_reason(platform::filesystem(folder), is_watched)
}

fn choose_poll_reason(filesystem: Filesystem, is_watched: bool) -> Option<PollReason> {
    match (filesystem, is_watched) {
        (Filesystem::Network, _) => Some(PollReason::Network),
        (Filesystem::Unknown, _) => Some(PollReason::UnknownFilesystem),
        (Filesystem::Local, false) => Some(PollReason::NoWatch),
        (Filesystem::Local, true) => None,
    }
}

/// Inode of each watched path.
///
/// The value is `None` once the path was removed or renamed, because that ends the watch.
type Watched = Arc<Mutex<HashMap<PathBuf, Option<u64>>>>;

/// File watcher, which watches files and folders until it is dropped.
pub struct FileWatcher {
    watcher: RecommendedWatcher,
    watched: Watched,
}

impl FileWatcher {
    /// Creates a watcher without paths, which calls `handler` on its own thread.
    ///
    /// Reads are not reported, and neither are temporary files of [`files`](crate::files). Symbolic links are not
    /// followed, because in a shared folder they could point anywhere.
    pub fn new(mut handler: impl FnMut(FileEvent) + Send + 'static) -> Result<Self, WatchError> {
        let watched = Watched::default();
        let ended = watched.clone();
        let on_event = move |event: notify::Result<notify::Event>| {
            let Some(event) = event::translate(event) else { return };
            if let FileEvent::Changed(change) = &event
                && change.ends_watch
            {
                let mut ended = ended.lock();
                for path in &change.paths {
                    ended.entry(path.clone()).and_modify(|inode| *inode = None);
                }
            }
            handler(event);
        };
        let config = notify::Config::default().with_follow_symlinks(false);
        Ok(Self { watcher: RecommendedWatcher::new(on_event, config)?, watched })
    }

    /// Watches one path.
    pub fn watch(&mut self, path: &Path, depth: Depth) -> Result<(), WatchError> {
        // The inode is read first: if the path is replaced in between, `follow` sets the watch again.
        let inode = inode(path);
        let mode = match depth {
            Depth::Folder => RecursiveMode::NonRecursive,
            Depth::Tree => RecursiveMode::Recursive,
        };
        // The lock is not held here, because the event thread takes it too and `notify` waits for that thread.
        self.watcher.watch(path, mode)?;
        self.watched.lock().insert(path.to_owned(), inode);
        Ok(())
    }

    /// Watches exactly these paths from now on. Returns the paths that cannot be watched.
    ///
    /// A folder that was removed and created again is watched again, because the system ended its watch. Call this
    /// before each scan: the scan then finds files that were put into a new folder earlier, and later files cause an
    /// event.
    pub fn follow(
        &mut self,
        wanted: impl IntoIterator<Item = (PathBuf, Depth)>,
    ) -> Vec<(PathBuf, WatchError)> {
        let wanted: BTreeMap<PathBuf, Depth> = wanted.into_iter().collect();
        let watched: Vec<(PathBuf, Option<u64>)> =
            self.watched.lock().iter().map(|(path, inode)| (path.clone(), *inode)).collect();
        for (path, known) in watched {
            if !wanted.contains_key(&path) || known.is_none() || known != inode(&path) {
                // An error means that the system has ended the watch already.
                let _ = self.watcher.unwatch(&path);
                self.watched.lock().remove(&path);
            }
        }
        let mut failed = Vec::new();
        for (path, depth) in wanted {
            let is_watched = self.watched.lock().contains_key(&path);
            if !is_watched && let Err(error) = self.watch(&path, depth) {
                failed.push((path, error));
            }
        }
        failed
    }
}

impl std::fmt::Debug for FileWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileWatcher").field("watched", &self.watched).finish_non_exhaustive()
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|found| found.ino())
}

#[cfg(test)]
#[path = "file_watcher_tests.rs"]
mod tests;
