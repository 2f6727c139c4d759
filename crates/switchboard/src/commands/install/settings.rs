//! A client's settings file: read, compare, back up, replace.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use similar::TextDiff;
use switchboard_core::error_chain;
use switchboard_sys::files::{Created, Dir, Durability, FileError};

use crate::failure::{Exit, Failure};

/// Maximum file size. Claude Code stores the history of all projects in the same file as its settings.
const LIMIT: u64 = 64 << 20;

/// Byte order mark, which some editors write.
const MARK: char = '\u{feff}';

/// Permissions of a new file.
const MODE: u32 = 0o600;

/// Location of a settings file.
pub(super) struct SettingsPath {
    path: PathBuf,
    /// Folder that the path may not leave, if others may have created files in it.
    within: Option<PathBuf>,
}

impl SettingsPath {
    /// Creates the location of a file in the user's own folder. Symbolic links are followed, because users link to
    /// settings in a repository.
    pub(super) fn in_user_folder(path: PathBuf) -> Self {
        let path = path.canonicalize().unwrap_or(path);
        Self { path, within: None }
    }

    /// Creates the location of a file in a workspace, where symbolic links are not followed.
    pub(super) fn in_workspace(folder: &Path, below: &str) -> Self {
        Self { path: folder.join(below), within: Some(folder.to_owned()) }
    }
}

/// Text of a settings file, before and after the edit.
pub(super) struct Settings {
    place: SettingsPath,
    name: String,
    /// Text before the edit; `None` if there is no file.
    was: Option<String>,
    text: String,
    /// True if the file starts with a byte order mark. The mark is not part of the text, and is retained.
    has_mark: bool,
}

/// Result of writing a file.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Path of the backup.
    pub(super) backup: Option<PathBuf>,
}

impl Settings {
    pub(super) fn read(place: SettingsPath) -> Result<Self, Failure> {
        let name = place.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let was = match open(&place, false)? {
            Some(folder) => read(&folder, &name, &place.path)?,
            None => None,
        };
        let has_mark = was.as_deref().is_some_and(|was| was.starts_with(MARK));
        let text = was.as_deref().unwrap_or_default();
        let text = text.strip_prefix(MARK).unwrap_or(text).to_owned();
        Ok(Self { place, name, was, text, has_mark })
    }

    pub(super) fn path(&self) -> &Path {
        &self.place.path
    }

    /// Applies `edit` to the text; returns the second part of its result.
    ///
    /// The text is unchanged if `edit` returns no new one.
    pub(super) fn edit<T>(
        &mut self,
        edit: impl FnOnce(&str) -> Result<(Option<String>, T), String>,
    ) -> Result<T, Failure> {
        let (text, rest) = edit(&self.text).map_err(|problem| not_understood(&self.place.path, &problem))?;
        if let Some(text) = text {
            self.text = text;
        }
        Ok(rest)
    }

    /// Returns the text with all edits so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn text_was(&self) -> &str {
        let was = self.was.as_deref().unwrap_or_default();
        was.strip_prefix(MARK).unwrap_or(was)
    }

    /// Returns true if writing would change the file.
    pub(super) fn is_changed(&self) -> bool {
        self.text_was() != self.text
    }

    /// Refuses to change a file that its owner made read-only. An atomic replacement would succeed, but against the
    /// owner's intent.
    pub(super) fn check_writable(&self) -> Result<(), Failure> {
        let mode = std::fs::metadata(&self.place.path).ok().map(|found| found.permissions().mode());
        if self.is_changed() && mode.is_some_and(|mode| mode & 0o222 == 0) {
            let message = format!("{} is read-only", self.place.path.display());
            return Err(Failure::new("read_only", Exit::Failed, message)
                .hint("make it writable, or add the entries by hand; nothing was changed"));
        }
        Ok(())
    }

    /// Returns the changes as a line diff.
    pub(super) fn diff(&self) -> Option<String> {
        let diff = TextDiff::from_lines(self.text_was(), &self.text);
        let path = self.place.path.display().to_string();
        let mut shown = String::new();
        let _ = write!(shown, "{}", diff.unified_diff().context_radius(3).header(&path, &path));
        self.is_changed().then_some(shown)
    }

    /// Writes the file atomically, with a backup beside it.
    pub(super) fn write(self, now: Timestamp) -> Result<Written, Failure> {
        if !self.is_changed() {
            return Ok(Written::default());
        }
        let path = self.place.path.clone();
        let Some(folder) = open(&self.place, true)? else { return Err(vanished(&path)) };
        // Remove temporary files of processes that were killed while writing.
        if let Err(error) = folder.clear_abandoned_temps() {
            tracing::debug!(%error, "files that were never finished could not be cleared away");
        }
        let mut text = self.text;
        // A file without a final line break stays without one.
        let ends_open = self.was.as_deref().is_some_and(|was| !was.is_empty() && !was.ends_with('\n'));
        if !text.ends_with('\n') && !ends_open {
            text.push('\n');
        }
        if self.has_mark {
            text.insert(0, MARK);
        }
        let mut written = Written::default();
        let mut mode = MODE;
        if let Some(was) = &self.was {
            mode = std::fs::metadata(&path).map_or(MODE, |found| found.permissions().mode() & 0o777);
            written.backup = Some(folder.path().join(back_up(&folder, &self.name, was, now)?));
        }
        // A client may have written its settings meanwhile; its changes must not be overwritten.
        if read(&folder, &self.name, &path)? != self.was {
            return Err(vanished(&path));
        }
        folder.replace(&self.name, text.as_bytes(), mode).map_err(file)?;
        Ok(written)
    }
}

/// Opens the folder of a file; creates the folder if `make` is true.
fn open(place: &SettingsPath, make: bool) -> Result<Option<Dir>, Failure> {
    let parent = place.path.parent().unwrap_or(Path::new("."));
    let root = place.within.clone().unwrap_or_else(|| {
        let existing = parent.ancestors().find(|folder| folder.is_dir());
        existing.unwrap_or(parent).to_owned()
    });
    if !root.is_dir() {
        return Ok(None);
    }
    let mut folder = Dir::open_root(&root).map_err(file)?;
    let below = parent.strip_prefix(&root).unwrap_or(Path::new(""));
    for part in below.components() {
        let part = part.as_os_str().to_string_lossy();
        folder = match (folder.subdir(&part).map_err(file)?, make) {
            (Some(folder), _) => folder,
            (None, true) => folder.ensure_subdir(&part).map_err(file)?,
            (None, false) => return Ok(None),
        };
    }
    Ok(Some(folder))
}

fn read(folder: &Dir, name: &str, path: &Path) -> Result<Option<String>, Failure> {
    let found = folder.read(name, LIMIT).map_err(file)?;
    let text = found.map(|found| String::from_utf8(found.bytes)).transpose();
    text.map_err(|_| not_understood(path, "is not UTF-8 text"))
}

/// Writes the old text to a backup file under an unused name.
fn back_up(folder: &Dir, name: &str, was: &str, now: Timestamp) -> Result<String, Failure> {
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    for number in 1..100 {
        let again = if number == 1 { String::new() } else { format!("-{number}") };
        let backup = format!("{name}.backup-{stamp}{again}");
        if folder.create_new(&backup, was.as_bytes(), Durability::Synced).map_err(file)? == Created::Created {
            return Ok(backup);
        }
    }
    Err(Failure::temporary("no_backup", format!("there is no free name for a copy of {name}")))
}

fn not_understood(path: &Path, problem: &str) -> Failure {
    let message = format!("{}: {problem}", path.display());
    Failure::new("bad_settings", Exit::Failed, message)
        .hint("correct it, or add the entries by hand: docs/reaching.md shows them; nothing was changed")
}

fn vanished(path: &Path) -> Failure {
    Failure::temporary("changed", format!("{} was changed by another program meanwhile", path.display()))
        .hint("try again")
}

fn file(error: FileError) -> Failure {
    Failure::new("file", Exit::Failed, error_chain(&error)).hint("that file was not changed")
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
