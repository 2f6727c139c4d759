//! What can go wrong at the workspace door.

use std::path::PathBuf;

use switchboard_core::AddressError;
use switchboard_core::Name;
use switchboard_hub::HubError;
use switchboard_hub::files::FileError;
use switchboard_hub::lock::LockError;

use crate::roles::RoleError;
use crate::team_mail::TeamMailError;
use crate::workflow::WorkflowError;

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
    /// A role is unknown, or leads to nobody or to several.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// Nobody of a team was sent the message.
    #[error(transparent)]
    TeamMail(#[from] TeamMailError),
    /// The rules of a workflow say no.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// What was given as a recipient is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// `bridge.json` is not what we write, so it is left alone.
    #[error("bridge.json is not valid: {problem}")]
    DamagedBridge {
        /// What the parser said.
        problem: String,
    },
    /// Something that was given does not do.
    #[error("the field '{field}' {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it, and what would do.
        problem: String,
    },
    /// Another process types for this agent.
    #[error("{holder} already runs the terminal of '{agent}' in this workspace")]
    TerminalTaken {
        /// Whose terminal.
        agent: Name,
        /// Who runs it.
        holder: String,
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
    /// This program stood still for longer than a lock lives, and somebody else took the lock over.
    #[error("the lock on state.json was lost while this program stood still, and nothing was written")]
    LockLost,
    /// The runtime is shutting down.
    #[error("the program is shutting down")]
    Closed,
}
