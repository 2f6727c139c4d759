//! Error of an action that was refused.

use door_workspace::WorkspaceError;
use switchboard_core::{AddressError, AgentId, Kind, KindError, NameError, TaskNameError};
use switchboard_hub::{HubError, WorkTreeError};

/// Error of an action that was refused. Nothing was done.
///
/// Fields are named as in [`ACTIONS`](crate::ACTIONS). A face, such as the command line, translates them to the names
/// of its own options.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// A message has neither text nor metadata.
    #[error("the text is empty")]
    EmptyText,
    /// A field that needs a value has none.
    #[error("'{field}' is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("'{field}' {problem}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The rule that the value violates.
        problem: String,
    },
    /// Two fields of a request exclude each other.
    #[error("'{first}' and '{second}' exclude each other")]
    Conflict {
        /// The first of the two fields.
        first: &'static str,
        /// The second of the two fields.
        second: &'static str,
    },
    /// The text is not one of the five kinds of message.
    #[error("'{}' is not a kind of message", .given.escape_debug())]
    UnknownKind {
        /// The text as given.
        given: String,
        /// The most similar kind.
        near: Option<&'static str>,
    },
    /// A message that is not a task was to replace earlier tasks.
    #[error("only a task replaces earlier tasks, and this is {kind}")]
    ReplacesNoTask {
        /// The kind of the message.
        kind: Kind,
    },
    /// A claim is not written as TASK:FENCE.
    #[error("the claim '{}' is not TASK:FENCE", .given.escape_debug())]
    BadClaim {
        /// The text as given.
        given: String,
    },
    /// The agent has reserved none of the patterns.
    #[error("{} is not reserved by you in this tree", .patterns.join(", "))]
    NotReserved {
        /// The patterns as given.
        patterns: Vec<String>,
    },
    /// The acting agent belongs to another hub.
    #[error("{agent} is not an agent of this hub")]
    NotLocal {
        /// The agent.
        agent: AgentId,
    },
    /// The workspace or the hub refused the action.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The name of an agent or a team is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name of a task is not valid.
    #[error(transparent)]
    Task(#[from] TaskNameError),
    /// A path or pattern cannot be reserved.
    #[error(transparent)]
    Tree(#[from] WorkTreeError),
}

impl From<HubError> for ActionError {
    fn from(error: HubError) -> Self {
        Self::Workspace(error.into())
    }
}

impl From<AddressError> for ActionError {
    fn from(error: AddressError) -> Self {
        Self::Workspace(error.into())
    }
}

impl From<KindError> for ActionError {
    fn from(error: KindError) -> Self {
        Self::UnknownKind { given: error.text, near: None }
    }
}

/// Checks a line that other agents see: it must be non-empty, short, and without control characters.
pub(crate) fn check_line(field: &'static str, line: Option<&str>) -> Result<(), ActionError> {
    match line.map(|line| door_workspace::check_title(field, line)) {
        Some(Err(WorkspaceError::Field { field, problem })) => Err(ActionError::Invalid { field, problem }),
        Some(other) => Ok(other?),
        None => Ok(()),
    }
}
