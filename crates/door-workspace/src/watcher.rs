//! File watcher for the mailboxes.

use std::path::PathBuf;
use std::sync::Arc;

use switchboard_sys::file_watcher::{ChangeKind, Depth, FileEvent, FileWatcher};
use tokio::sync::Notify;

use crate::error::WorkspaceError;
use crate::own_files::OwnFiles;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

/// True if each mailbox folder gets its own watcher instead of one recursive watcher.
///
/// On Linux, a recursive inotify watcher does the same internally, but first examines every file in every mailbox.
/// Other systems can watch a whole tree at once.
const BY_FOLDER: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Watches all mailboxes and signals `hints` on each change. A queue overflow also counts as a change.
pub(crate) struct MailboxWatcher {
    watcher: Option<FileWatcher>,
    inbox: PathBuf,
}

impl MailboxWatcher {
    /// Starts watching the inbox folder.
    ///
    /// Files in mailbox folders are watched once [`follow`](Self::follow) has been called.
    pub(crate) fn start(workspace: &Workspace, hints: &Arc<Notify>) -> Self {
        let inbox = workspace.tree().root().path().join(Section::Inbox.as_str());
        let (signal, own_files) = (hints.clone(), workspace.own_files().clone());
        own_files.start_recording();
        let hint = move |event| {
            if !is_own_delivery(&event, &own_files) {
                signal.notify_one();
            }
        };
        let depth = if BY_FOLDER { Depth::Folder } else { Depth::Tree };
        let watcher = FileWatcher::new(hint)
            .and_then(|mut watcher| watcher.watch(&inbox, depth).map(|()| watcher))
            .inspect_err(|error| tracing::warn!(%error, "no file events; polling instead"))
            .ok();
        Self { watcher, inbox }
    }

    /// Watches the mailbox folders that currently exist. Call this before each scan.
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
        let names = tree.folders(Section::Inbox).unwrap_or_default();
        // Skip a mailbox that is a symbolic link or belongs to another user.
        let own = names.iter().filter(|name| matches!(tree.own_folder(Section::Inbox, name), Ok(Some(_))));
        let folders = own.map(|name| self.inbox.join(name)).chain([self.inbox.clone()]);
        for (folder, error) in watcher.follow(folders.map(|folder| (folder, Depth::Folder))) {
            tracing::warn!(folder = %folder.display(), %error, "no file events for this mailbox; polling instead");
        }
    }
}

/// Returns true for the event of a file that this process delivered itself.
///
/// Such an event needs no scan.
fn is_own_delivery(event: &FileEvent, own_files: &OwnFiles) -> bool {
    match event {
        FileEvent::Changed(change) => match change.paths.as_slice() {
            [file] => change.kind == ChangeKind::Created && own_files.remove_expected(file),
            _ => false,
        },
        FileEvent::Missed => false,
    }
}
