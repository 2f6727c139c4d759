//! Adds and removes children of a workspace.
//!
//! An existing file is never overwritten or deleted, only moved to a backup, so that no work of other authors is lost.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use switchboard_sys::files::{Created, Dir, Durability, FileError, Moved};

use crate::discovery::FILE_LIMIT;
use crate::error::SuiteError;
use crate::mcp_json::McpFile;
use crate::paths::SuitePaths;
use crate::redact::{is_reference, is_secret};

/// Name of the file that describes a child.
pub(crate) const CHILD_FILE: &str = ".mcp.json";

/// Content of the `.gitignore` that excludes a child's folder from the repository.
const GITIGNORE: &str = "# Written by switchboard: the server's settings hold a secret.\n*\n";

/// Outcome of adding a child to the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddOutcome {
    /// The child was added.
    Added,
    /// An identical child already exists, and nothing was changed.
    Same,
    /// A different child of this name exists and was not changed.
    Differs {
        /// File that describes the existing child.
        file: PathBuf,
    },
}

/// Adds a child to the workspace as `.switchboard/mcps/<name>/.mcp.json`.
///
/// If `private` is set and the file contains a secret, a `.gitignore` excludes the child's folder from the repository.
pub fn add_child(
    paths: &SuitePaths,
    name: &str,
    file: &McpFile,
    private: bool,
) -> Result<AddOutcome, SuiteError> {
    let template = file.launch_template(name)?;
    let folder = workspace_folder(paths)?.ensure_subdir("mcps")?.ensure_subdir(name)?;
    let text = file.to_json();
    let mut values = template.env.iter().chain(&template.headers);
    if private && values.any(|(name, value)| is_secret(name, value) && !is_reference(value)) {
        folder.create_new(".gitignore", GITIGNORE.as_bytes(), Durability::Unsynced)?;
    }
    match folder.create_new(CHILD_FILE, text.as_bytes(), Durability::Synced)? {
        Created::Created => Ok(AddOutcome::Added),
        Created::AlreadyExists => {
            let existing = folder.read(CHILD_FILE, FILE_LIMIT)?;
            let is_same = existing.is_some_and(|existing| match McpFile::parse(&existing.bytes) {
                Ok((existing, _)) => existing.to_json() == text,
                Err(_) => false,
            });
            let file = folder.path().join(CHILD_FILE);
            Ok(if is_same { AddOutcome::Same } else { AddOutcome::Differs { file } })
        }
    }
}

/// Removes a child from the workspace.
///
/// The child's file is moved to `.switchboard/backups/`. Returns the new path.
pub fn remove_child(
    paths: &SuitePaths,
    name: &str,
    file: &Path,
    now: Timestamp,
) -> Result<PathBuf, SuiteError> {
    let root = workspace_folder(paths)?;
    let folder_name = file.parent().and_then(|folder| folder.file_name()).map(|name| name.to_string_lossy());
    let folder = match (root.subdir("mcps")?, folder_name) {
        (Some(mcps), Some(name)) if file.starts_with(mcps.path()) => mcps.subdir(&name)?,
        _ => None,
    };
    let Some(folder) = folder.filter(|folder| folder.path().join(CHILD_FILE) == file) else {
        return Err(SuiteError::BadFile {
            file: file.to_owned(),
            problem: "is not below .switchboard/mcps; remove it yourself".to_owned(),
        });
    };
    let backups = root.ensure_subdir("backups")?;
    let name =
        free_name(
            name,
            now,
            |name| Ok(folder.move_new(CHILD_FILE, &backups, name)? != Moved::AlreadyExists),
        )?;
    if folder
        .read(".gitignore", 4096)
        .is_ok_and(|found| found.is_some_and(|f| f.bytes == GITIGNORE.as_bytes()))
    {
        folder.remove(".gitignore")?;
    }
    // The removal fails if the folder contains other files; the folder is then kept.
    let _ = std::fs::remove_dir(folder.path());
    Ok(backups.path().join(name))
}

/// Opens the `.switchboard/` folder of a workspace.
pub(crate) fn workspace_folder(paths: &SuitePaths) -> Result<Dir, SuiteError> {
    Ok(Dir::open_root(&paths.workspace)?.ensure_subdir(".switchboard")?)
}

/// Finds an unused backup name that contains the date. `take` returns true if it could claim a name.
pub(crate) fn free_name(
    stem: &str,
    now: Timestamp,
    mut take: impl FnMut(&str) -> Result<bool, FileError>,
) -> Result<String, SuiteError> {
    /// Maximum number of backups of one file within a second.
    const MOST: u32 = 1000;
    let date = now.strftime("%Y-%m-%dT%H-%M-%SZ");
    for number in 1..MOST {
        let mark = if number == 1 { String::new() } else { format!("-{number}") };
        let name = format!("{stem}.{date}{mark}.mcp.json");
        if take(&name)? {
            return Ok(name);
        }
    }
    let problem = "there are too many backups of this second; try again".to_owned();
    Err(SuiteError::BadFile { file: PathBuf::from("backups"), problem })
}
