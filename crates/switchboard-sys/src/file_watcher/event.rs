//! Events of the file watcher, translated from those of `notify`.

use std::path::{Path, PathBuf};

use notify::EventKind;
use notify::event::{CreateKind, ModifyKind, RemoveKind, RenameMode};

use crate::files::is_unfinished;

/// Event of a watched path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEvent {
    /// Some paths changed.
    Changed(FileChange),
    /// Any path may have changed, because the event queue overflowed or the watch failed.
    Missed,
}

/// Change of files or folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// True if the system reports that a folder was created or removed.
    pub is_folder: bool,
    /// The changed paths; never empty.
    pub paths: Vec<PathBuf>,
    /// True if this change ends the watch of one of the paths.
    pub(super) ends_watch: bool,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// A path was created.
    Created,
    /// The content or the name changed.
    Modified,
    /// Only attributes changed, such as the mode or the number of hard links.
    Attributes,
    /// A path was removed.
    Removed,
    /// A change of a kind that the system does not report.
    Other,
}

impl FileChange {
    /// Creates a change of one path.
    pub fn new(kind: ChangeKind, path: impl Into<PathBuf>) -> Self {
        Self { kind, is_folder: false, paths: vec![path.into()], ends_watch: false }
    }
}

/// Translates an event of `notify`.
///
/// Returns `None` if the event is not a change, or if it concerns only unfinished files.
pub(super) fn translate(event: notify::Result<notify::Event>) -> Option<FileEvent> {
    let event = match event {
        Ok(event) if event.need_rescan() => return Some(FileEvent::Missed),
        Ok(event) => event,
        Err(_) => return Some(FileEvent::Missed),
    };
    let kind = match event.kind {
        // Access events include those of our own reads.
        EventKind::Access(_) => return None,
        EventKind::Create(_) => ChangeKind::Created,
        EventKind::Modify(ModifyKind::Metadata(_)) => ChangeKind::Attributes,
        EventKind::Modify(_) => ChangeKind::Modified,
        EventKind::Remove(_) => ChangeKind::Removed,
        EventKind::Any | EventKind::Other => ChangeKind::Other,
    };
    if event.paths.is_empty() {
        return Some(FileEvent::Missed);
    }
    if event.paths.iter().all(|path| is_temporary(path)) {
        return None;
    }
    let is_folder =
        matches!(event.kind, EventKind::Create(CreateKind::Folder) | EventKind::Remove(RemoveKind::Folder));
    let ends_watch = matches!(
        event.kind,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From | RenameMode::Any))
    );
    Some(FileEvent::Changed(FileChange { kind, is_folder, paths: event.paths, ends_watch }))
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_unfinished)
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
