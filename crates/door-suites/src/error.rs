//! What can go wrong at the suites' door, apart from what a child itself answers.

use std::path::PathBuf;

use switchboard_sys::files::FileError;
use switchboard_sys::lock::LockError;

/// Why the suites' door did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The workspace is not there.
    #[error("there is no folder {} to look for MCP servers in", .path.display())]
    NoWorkspace {
        /// Where it should be.
        path: PathBuf,
    },
    /// A value of the settings does not do.
    #[error("the key '{key}' {problem}")]
    Config {
        /// Which, as a path of keys.
        key: String,
        /// What is wrong with it, and what would do.
        problem: String,
    },
    /// What was given as a child's name is none.
    #[error("'{}' cannot be the name of a server: {problem}", .name.escape_debug())]
    BadName {
        /// The name as given.
        name: String,
        /// Which rule it breaks.
        problem: String,
    },
    /// What was given of a child does not do.
    #[error("the field '{field}' {problem}")]
    Field {
        /// Which.
        field: String,
        /// What is wrong with it, and what would do.
        problem: String,
    },
    /// There is no child of that name.
    #[error("there is no server '{name}' in this workspace{}", near_words(.near))]
    UnknownChild {
        /// The name as given.
        name: String,
        /// Those that look like it.
        near: Vec<String>,
    },
    /// There is already a child of that name.
    #[error("there is already a server '{name}', described in {}", .file.display())]
    NameTaken {
        /// The name.
        name: String,
        /// The file that has it.
        file: PathBuf,
    },
    /// A tool has no pin, or no change that waits for approval.
    #[error("the server '{child}' has no tool '{tool}' that waits for approval")]
    NothingToApprove {
        /// The child.
        child: String,
        /// The tool.
        tool: String,
    },
    /// A file of ours or of a client is not what it should be.
    #[error("{}: {problem}", .file.display())]
    BadFile {
        /// Which.
        file: PathBuf,
        /// What is wrong with it, with line and column where they are known.
        problem: String,
    },
    /// A client's settings were not found.
    #[error("no settings of {client} were found; looked in {}", paths(.looked))]
    NoClientSettings {
        /// Which client.
        client: &'static str,
        /// Where they were looked for.
        looked: Vec<PathBuf>,
    },
    /// There is nothing to go back to.
    #[error("there is no backup of .mcp.json in {}", .folder.display())]
    NoBackup {
        /// Where one was looked for.
        folder: PathBuf,
    },
    /// A file was edited since we wrote it, and would be lost.
    #[error("{} was edited since switchboard wrote it", .file.display())]
    Edited {
        /// Which.
        file: PathBuf,
    },
    /// A file was edited after we had read it, and would be lost.
    #[error("{} was changed meanwhile, and is left as it is", .file.display())]
    ModifiedConcurrently {
        /// Which.
        file: PathBuf,
    },
    /// The settings switched the child off.
    #[error("the server '{name}' is switched off in the settings")]
    Disabled {
        /// Its name.
        name: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is locked by another program.
    #[error(transparent)]
    Lock(#[from] LockError),
}

fn near_words(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let words: Vec<String> = near.iter().map(|word| format!("'{word}'")).collect();
    format!("; did you mean {}?", words.join(" or "))
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
