//! The file watcher of the mailboxes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use crate::error::WorkspaceError;
use crate::run::is_hint;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

/// True to watch each mailbox folder separately. A recursive inotify watch does the same, but first examines every file
/// of every mailbox. Other systems watch a whole tree at once.
const BY_FOLDER: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Watches all mailboxes and signals `hints` on each change. A queue overflow is a hint as well.
pub(crate) struct MailboxWatcher {
    watcher: Option<RecommendedWatcher>,
    inbox: PathBuf,
    /// Watched folders and their inodes. A folder that was removed and created again has another inode.
    folders: BTreeMap<String, u64>,
}

impl MailboxWatcher {
    /// Starts watching the inbox folder. Files in mailbox folders are watched from the first [`follow`](Self::follow).
    pub(crate) fn start(workspace: &Workspace, hints: &Arc<Notify>) -> Self {
        let inbox = workspace.tree().root().path().join(Section::Inbox.as_str());
        let (signal, own_files) = (hints.clone(), workspace.own_files().clone());
        own_files.start_recording();
        let hint = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_hint(&event, &own_files)) {
                signal.notify_one();
            }
        };
        // A symbolic link in a mailbox could point anywhere; its target is not ours to watch.
        let settings = notify::Config::default().with_follow_symlinks(false);
        let mode = if BY_FOLDER { RecursiveMode::NonRecursive } else { RecursiveMode::Recursive };
        let watcher = RecommendedWatcher::new(hint, settings)
            .and_then(|mut watcher| watcher.watch(&inbox, mode).map(|()| watcher))
            .inspect_err(|error| tracing::warn!(%error, "no file events; polling instead"))
            .ok();
        Self { watcher, inbox, folders: BTreeMap::new() }
    }

    /// Watches the folders that exist now. Call it before each scan: the scan finds files that were put into a new
    /// folder earlier, and later ones cause an event.
    ///
    /// Linux marks each cached file of a folder, which takes 15 ms for 100,000 files, so this runs on another thread.
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
                && let Ok(stamp) = folder.dir_stat()
            {
                there.insert(name, stamp.inode);
            }
        }
        if there == self.folders {
            return;
        }
        for (name, _) in self.folders.iter().filter(|(name, inode)| there.get(*name) != Some(inode)) {
            // The system ended the watch when the folder was removed.
            let _ = watcher.unwatch(&self.inbox.join(name));
        }
        let mut watched = BTreeMap::new();
        for (name, inode) in there {
            let is_watched = self.folders.get(&name) == Some(&inode)
                || watcher.watch(&self.inbox.join(&name), RecursiveMode::NonRecursive).is_ok();
            if is_watched {
                watched.insert(name, inode);
            } else {
                tracing::warn!(mailbox = name, "no file events for this mailbox; polling instead");
            }
        }
        self.folders = watched;
    }
}
