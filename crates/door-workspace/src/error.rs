//! What can go wrong at the workspace door.

use std::path::PathBuf;

use switchboard_hub::HubError;
use switchboard_hub::files::FileError;
use switchboard_hub::lock::LockError;

/// Why the workspace door did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// There is no workspace there.
    #[error("{} has no .switchboard folder", .path.display())]
    NotAWorkspace {
        /// Where one was looked for.
        path: PathBuf,
    },
    /// The folder was moved, deleted or replaced while it was in use.
    #[error("{} was moved or replaced while in use", .path.display())]
    Moved {
        /// Where it was.
        path: PathBuf,
    },
    /// `state.json` is not what the protocol says, and nobody asked to change it.
    #[error("state.json is not valid: {problem}")]
    DamagedState {
        /// What the parser said.
        problem: String,
    },
    /// The hub said no.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// `state.json` is locked by another program.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The runtime is shutting down.
    #[error("the program is shutting down")]
    Closed,
}
