//! Errors of the workspace door.

use std::path::PathBuf;

use switchboard_core::{Address, AddressError, AgentId, Name};
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;
use switchboard_sys::lock::LockError;

use crate::roles::RoleError;
use crate::team_send::TeamSendError;
use crate::workflow::WorkflowError;

/// An error of the workspace door.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// There is no workspace.
    #[error("{} has no .switchboard folder", .path.display())]
    NotAWorkspace {
        /// The folder that was searched.
        path: PathBuf,
    },
    /// The folder was moved, deleted or replaced while it was in use.
    #[error("{} was moved or replaced while in use", .path.display())]
    Moved {
        /// Its former path.
        path: PathBuf,
    },
    /// `state.json` is invalid, and the request does not change it.
    #[error("state.json is not valid: {problem}")]
    DamagedState {
        /// The parser's error.
        problem: String,
    },
    /// A role is unknown, unassigned or ambiguous.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// No member of a team got the message.
    #[error(transparent)]
    TeamSend(#[from] TeamSendError),
    /// A workflow's rules refuse the request.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// The recipient is not a valid address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// `bridge.json` is not in our format, so it is not changed.
    #[error("bridge.json is not valid: {problem}")]
    DamagedBridge {
        /// The parser's error.
        problem: String,
    },
    /// A field has an invalid value.
    #[error("the field '{field}' {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// The rule that it breaks, and a valid value.
        problem: String,
    },
    /// Another process types for this agent.
    #[error("{holder} already runs the terminal of '{agent}' in this workspace")]
    TerminalTaken {
        /// The agent.
        agent: Name,
        /// The process.
        holder: String,
    },
    /// An `execute` message for an agent without a running terminal: it would never be typed.
    #[error("no terminal of '{agent}' runs, so nothing would be typed")]
    NoTerminal {
        /// The agent.
        agent: AgentId,
    },
    /// An `execute` message for a group, or for an agent of another owner or hub.
    #[error("an execute message is typed into the terminal of one agent of this hub, and '{to}' is not one")]
    NotOneTerminal {
        /// The recipient.
        to: Address,
    },
    /// An error of the hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// `state.json` is locked by another program.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// This process was stopped for longer than a lock lives, and another process took the lock over.
    #[error("the lock on state.json was lost while this program was stopped; nothing was written")]
    LockLost,
    /// The runtime is shutting down.
    #[error("the program is shutting down")]
    Closed,
}

impl WorkspaceError {
    /// True if the disk is read-only, full or failing. The request could not be written; reads still work.
    pub fn is_disk(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_disk(),
            Self::File(error) | Self::Lock(LockError::Io(error)) => error.is_disk(),
            _ => false,
        }
    }

    /// True if the workspace is gone and the door must stop.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Moved { .. } | Self::Closed | Self::Hub(HubError::StoreDeleted { .. }))
    }
}

/// Ignores a disk error of a write that accompanies a read, so that the read still succeeds.
pub(crate) fn unless_disk<T: Default>(result: Result<T, WorkspaceError>) -> Result<T, WorkspaceError> {
    match result {
        Err(error) if error.is_disk() => {
            tracing::debug!(%error, "skipped, because the disk cannot be written");
            Ok(T::default())
        }
        result => result,
    }
}
