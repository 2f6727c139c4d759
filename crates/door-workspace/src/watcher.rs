//! The watch on the mailboxes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use crate::error::WorkspaceError;
use crate::run::is_hint;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

/// Whether each folder is watched by itself. A recursive watch of inotify is the same, except that it first examines every
/// file of every mailbox; elsewhere the system watches a whole tree at once.
const BY_FOLDER: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Rings on whatever happens in the mailboxes. Overflow is a hint like any other.
pub(crate) struct MailboxWatcher {
    watcher: Option<RecommendedWatcher>,
    inbox: PathBuf,
    /// The folders that are watched by themselves, each with its inode: one that was removed and made again is another.
    folders: BTreeMap<String, u64>,
}

impl MailboxWatcher {
    /// Begins to watch; files in folders are watched from the first [`follow`](Self::follow) on.
    pub(crate) fn begin(workspace: &Workspace, hints: &Arc<Notify>) -> Self {
        let inbox = workspace.tree().root().path().join(Section::Inbox.as_str());
        let (rings, own_files) = (hints.clone(), workspace.own_files().clone());
        own_files.listen();
        let hint = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_hint(&event, &own_files)) {
                rings.notify_one();
            }
        };
        // A link in a mailbox could lead anywhere; what lies behind it is none of ours.
        let settings = notify::Config::default().with_follow_symlinks(false);
        let mode = if BY_FOLDER { RecursiveMode::NonRecursive } else { RecursiveMode::Recursive };
        let watcher = RecommendedWatcher::new(hint, settings)
            .and_then(|mut watcher| watcher.watch(&inbox, mode).map(|()| watcher))
            .inspect_err(|error| tracing::warn!(%error, "no file events; looking by the clock alone"))
            .ok();
        Self { watcher, inbox, folders: BTreeMap::new() }
    }

    /// Watches the folders that are there now. To be called before each look at the mailboxes: what comes into a new folder
    /// before that is found by the look, and what comes later rings.
    ///
    /// Linux marks each file of a folder that it has cached, which takes 15 ms for 100,000 files, so this is done on another
    /// thread.
    pub(crate) async fn follow(mut self, workspace: &Workspace) -> Result<Self, WorkspaceError> {
        let tree = workspace.tree().clone();
        blocking(move || {
            self.watch_folders(&tree);
            Ok(self)
        })
        .await
    }

    fn watch_folders(&mut self, tree: &Tree) {
        let Some(watcher) = self.watcher.as_mut().filter(|_| BY_FOLDER) else { return };
        let mut there = BTreeMap::new();
        for name in tree.folders(Section::Inbox).unwrap_or_default() {
            if let Ok(Some(folder)) = tree.own_folder(Section::Inbox, &name)
                && let Ok(stamp) = folder.stamp()
            {
                there.insert(name, stamp.inode);
            }
        }
        if there == self.folders {
            return;
        }
        for (name, _) in self.folders.iter().filter(|(name, inode)| there.get(*name) != Some(inode)) {
            // The system has ended the watch with the folder.
            let _ = watcher.unwatch(&self.inbox.join(name));
        }
        let mut watched = BTreeMap::new();
        for (name, inode) in there {
            let is_watched = self.folders.get(&name) == Some(&inode)
                || watcher.watch(&self.inbox.join(&name), RecursiveMode::NonRecursive).is_ok();
            if is_watched {
                watched.insert(name, inode);
            } else {
                tracing::warn!(mailbox = name, "no file events of this mailbox; looking by the clock alone");
            }
        }
        self.folders = watched;
    }
}
