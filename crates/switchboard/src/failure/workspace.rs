//! Conversion of workspace errors into failures.

use door_workspace::{RoleError, TeamSendError, WorkflowError, WorkspaceError};
use switchboard_core::error_chain;

use super::{Exit, Failure};

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let message = error_chain(&error);
        match error {
            WorkspaceError::Hub(error) => error.into(),
            WorkspaceError::Address(error) => error.into(),
            WorkspaceError::Role(error) => error.into(),
            WorkspaceError::Workflow(error) => error.into(),
            WorkspaceError::TeamSend(TeamSendError::NoneWithRole { .. }) => {
                Self::new("no_member_with_role", Exit::NotFound, message)
                    .hint("`switchboard agents` lists the roles")
            }
            WorkspaceError::TeamSend(TeamSendError::NoneAccepted { .. }) => {
                Self::new("none_accepted", Exit::Failed, message)
            }
            WorkspaceError::NotAWorkspace { .. } => {
                Self::new("no_workspace", Exit::NotFound, message).hint("create one with `switchboard init`")
            }
            WorkspaceError::Moved { .. } => Self::new("workspace_moved", Exit::Failed, message)
                .hint("run it again in the workspace's current folder"),
            WorkspaceError::DamagedState { .. } => Self::new("damaged_state", Exit::Failed, message)
                .hint("`switchboard doctor --fix` moves the damaged file aside and writes a new one"),
            WorkspaceError::DamagedBridge { .. } => Self::new("damaged_bridge", Exit::Failed, message)
                .hint("move .switchboard/bridge.json aside; its host creates a new one"),
            WorkspaceError::Field { .. } => Self::new("bad_field", Exit::Usage, message),
            WorkspaceError::TerminalTaken { .. } => Self::new("already_running", Exit::Temporary, message)
                .hint("use the running terminal, end it first, or choose another name"),
            WorkspaceError::NoTerminal { ref agent } => {
                let hint = format!(
                    "start it with `switchboard run --name \"{agent}\" -- COMMAND` and send again, or send it as mail with --kind delegate_task"
                );
                Self::new("no_terminal", Exit::NotFound, message).hint(hint)
            }
            WorkspaceError::NotOneTerminal { .. } => Self::new("no_terminal", Exit::Usage, message)
                .hint("name one agent that runs under `switchboard run`, or send it as mail with --kind delegate_task"),
            WorkspaceError::Lock(_) => Self::temporary("locked", message)
                .hint("another program is changing state.json; try again, or check with `switchboard doctor`"),
            WorkspaceError::LockLost => Self::temporary("locked", message).hint("try again"),
            WorkspaceError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("free disk space and try again")
            }
            WorkspaceError::File(error) if error.is_read_only() => super::hub::read_only(message),
            WorkspaceError::File(_) => Self::new("file", Exit::Failed, message),
            WorkspaceError::Closed => Self::temporary("closed", message),
        }
    }
}

impl From<RoleError> for Failure {
    fn from(error: RoleError) -> Self {
        let message = error.to_string();
        match error {
            RoleError::Unknown { .. } => Self::new("unknown_role", Exit::NotFound, message),
            RoleError::Unfilled { .. } => Self::new("unfilled_role", Exit::NotFound, message)
                .hint("`switchboard agents role NAME ROLE` gives an agent a role"),
            RoleError::Ambiguous { .. } => Self::new("ambiguous_recipient", Exit::Failed, message),
        }
    }
}

/// The error messages are written for models that use the tools, so the hints give the command line instead.
impl From<WorkflowError> for Failure {
    fn from(error: WorkflowError) -> Self {
        let message = error.to_string();
        match error {
            WorkflowError::Unknown { .. } | WorkflowError::StaleRuntime { .. } => {
                Self::new("unknown_workflow", Exit::NotFound, message)
                    .hint("`switchboard workflow list` lists the workflows")
            }
            WorkflowError::Locked { .. } => Self::new("workflow_lock", Exit::NotAllowed, message)
                .hint("`switchboard workflow stop` ends it; --force replaces it, --suspend suspends it"),
            WorkflowError::NothingToStop { .. } | WorkflowError::NotActive { .. } => {
                Self::new("no_active_workflow", Exit::NotFound, message)
                    .hint("`switchboard workflow state` shows what is active")
            }
            WorkflowError::MissingArtifacts { .. }
            | WorkflowError::EvidenceRequired { .. }
            | WorkflowError::UnmatchedArtifacts { .. } => {
                Self::new("missing_artifacts", Exit::Failed, message).hint("name files with --artifact PATH")
            }
            WorkflowError::OutOfOrder { .. } => Self::new("out_of_order", Exit::NotAllowed, message)
                .hint("--skip-reason TEXT leaves phases out"),
            WorkflowError::ToolProhibited { .. } => Self::new("tool_prohibited", Exit::NotAllowed, message),
            _ => Self::new("workflow", Exit::Failed, message),
        }
    }
}
