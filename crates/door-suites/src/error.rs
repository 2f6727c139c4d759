//! Errors of the suites door, except errors returned by children.

use std::path::PathBuf;

use switchboard_sys::files::FileError;
use switchboard_sys::lock::LockError;

/// Error of the suites door.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The workspace folder does not exist.
    #[error("the workspace folder {} does not exist", .path.display())]
    NoWorkspace {
        /// Path at which the workspace was expected.
        path: PathBuf,
    },
    /// A setting has an invalid value.
    #[error("the key '{key}' {problem}")]
    Config {
        /// Path of the setting.
        key: String,
        /// Description of the error, and how to correct it.
        problem: String,
    },
    /// A child's name is invalid.
    #[error("'{}' cannot be the name of a server: {problem}", .name.escape_debug())]
    BadName {
        /// The invalid name.
        name: String,
        /// The rule that the name violates.
        problem: String,
    },
    /// A field of a child's description is invalid.
    #[error("the field '{field}' {problem}")]
    Field {
        /// Name of the field.
        field: String,
        /// Description of the error, and how to correct it.
        problem: String,
    },
    /// No child has this name.
    #[error("there is no server '{name}' in this workspace{}", suggestion(.near))]
    UnknownChild {
        /// The requested name.
        name: String,
        /// Existing names that are similar.
        near: Vec<String>,
    },
    /// A child of this name already exists.
    #[error("there is already a server '{name}', described in {}", .file.display())]
    NameTaken {
        /// The name that is already used.
        name: String,
        /// File that describes the existing child.
        file: PathBuf,
    },
    /// The tool has no change that is pending approval.
    #[error("the server '{child}' has no tool '{tool}' that waits for approval")]
    NothingToApprove {
        /// Name of the child.
        child: String,
        /// Name of the tool.
        tool: String,
    },
    /// A file of Switchboard or of an MCP client is invalid.
    #[error("{}: {problem}", .file.display())]
    BadFile {
        /// Path of the file.
        file: PathBuf,
        /// Description of the error, with line and column if known.
        problem: String,
    },
    /// No settings file of an MCP client was found.
    #[error("no settings of {client} were found; looked in {}", paths(.looked))]
    NoClientSettings {
        /// Name of the client.
        client: &'static str,
        /// Paths that were checked.
        looked: Vec<PathBuf>,
    },
    /// There is no backup to restore.
    #[error("there is no backup of .mcp.json in {}", .folder.display())]
    NoBackup {
        /// Folder that was checked.
        folder: PathBuf,
    },
    /// A file was edited after Switchboard wrote it; continuing would discard the edit.
    #[error("{} was edited since switchboard wrote it", .file.display())]
    Edited {
        /// Path of the file.
        file: PathBuf,
    },
    /// A file was modified between read and write; continuing would discard the modification.
    #[error("{} was modified in the meantime and was not overwritten", .file.display())]
    ModifiedConcurrently {
        /// Path of the file.
        file: PathBuf,
    },
    /// The child is disabled in the settings.
    #[error("the server '{name}' is disabled in the settings")]
    Disabled {
        /// Name of the child.
        name: String,
    },
    /// Reading or writing a file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The lock of the file is held by another program.
    #[error(transparent)]
    Lock(#[from] LockError),
}

fn suggestion(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let words: Vec<String> = near.iter().map(|word| format!("'{word}'")).collect();
    format!("; did you mean {}?", words.join(" or "))
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}
