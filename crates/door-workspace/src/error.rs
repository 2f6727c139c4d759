//! What can go wrong at the workspace door.

use std::path::PathBuf;

use switchboard_core::{Address, AddressError, AgentId, Name};
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;
use switchboard_sys::lock::LockError;

use crate::roles::RoleError;
use crate::team_send::TeamSendError;
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
    TeamSend(#[from] TeamSendError),
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
    /// An `execute` message for an agent without a running terminal: it would never be typed.
    #[error("no terminal of '{agent}' runs, so nothing would be typed")]
    NoTerminal {
        /// Whose terminal.
        agent: AgentId,
    },
    /// An `execute` message for many, or for an agent of another owner or hub.
    #[error("an execute message is typed into the terminal of one agent of this hub, and '{to}' is none")]
    NotOneTerminal {
        /// To whom.
        to: Address,
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

impl WorkspaceError {
    /// Whether the disk is read-only, full or failing, so that what was asked could not be written. What is there can
    /// still be read.
    pub fn is_disk(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_disk(),
            Self::File(error) | Self::Lock(LockError::Io(error)) => error.is_disk(),
            _ => false,
        }
    }

    /// Whether the workspace is gone, so that nothing can be done in it any more.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Moved { .. } | Self::Closed | Self::Hub(HubError::StoreDeleted { .. }))
    }
}

/// Passes over a failure of the disk in what is done beside reading: what was asked for can be shown all the same.
pub(crate) fn unless_disk<T: Default>(result: Result<T, WorkspaceError>) -> Result<T, WorkspaceError> {
    match result {
        Err(error) if error.is_disk() => {
            tracing::debug!(%error, "left undone, as the disk cannot be written");
            Ok(T::default())
        }
        result => result,
    }
}
