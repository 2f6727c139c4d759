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
    /// The folder is not in a workspace.
    #[error("{} has no .switchboard folder", .path.display())]
    NotAWorkspace {
        /// The folder that was searched.
        path: PathBuf,
    },
    /// The workspace folder was moved, deleted or replaced while it was in use.
    #[error("{} was moved or replaced while in use", .path.display())]
    Moved {
        /// Former path of the folder.
        path: PathBuf,
    },
    /// `state.json` is invalid. The request leaves the file unchanged.
    #[error("state.json is not valid: {problem}")]
    DamagedState {
        /// The parser's error.
        problem: String,
    },
    /// A role is unknown, unassigned or ambiguous.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// No member of the team received the message.
    #[error(transparent)]
    TeamSend(#[from] TeamSendError),
    /// A workflow rule rejects the request.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// The recipient is not a valid address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// `bridge.json` is not in Switchboard's format. The request leaves the file unchanged.
    #[error("bridge.json is not valid: {problem}")]
    DamagedBridge {
        /// The parser's error.
        problem: String,
    },
    /// A field has an invalid value.
    #[error("the field '{field}' {problem}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The rule that the value violates, and an example of a valid value.
        problem: String,
    },
    /// Another process already types into this agent's terminal.
    #[error("{holder} already runs the terminal of '{agent}' in this workspace")]
    TerminalTaken {
        /// The agent whose terminal is taken.
        agent: Name,
        /// Description of the process that holds the terminal.
        holder: String,
    },
    /// The agent has no running terminal, so an `execute` message would never be typed.
    #[error("no terminal of '{agent}' runs, so nothing would be typed")]
    NoTerminal {
        /// The agent without a terminal.
        agent: AgentId,
    },
    /// An `execute` message is not addressed to a single local agent.
    ///
    /// The address is a group, or an agent of another owner or hub.
    #[error("an execute message is typed into the terminal of one agent of this hub, and '{to}' is not one")]
    NotOneTerminal {
        /// The address that is not a single terminal.
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
    /// This process lost its lock.
    ///
    /// It was suspended for longer than the lock's lifetime, and another process took over the lock.
    #[error("the lock on state.json was lost while this program was stopped; nothing was written")]
    LockLost,
    /// The runtime is shutting down.
    #[error("the program is shutting down")]
    Closed,
}

impl WorkspaceError {
    /// Returns true if the disk is read-only, full or failing.
    ///
    /// The request could not be written; reads still work.
    pub fn is_disk(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_disk(),
            Self::File(error) | Self::Lock(LockError::Io(error)) => error.is_disk(),
            _ => false,
        }
    }

    /// Returns true if the workspace is gone and the door must stop.
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
