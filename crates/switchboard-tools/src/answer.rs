//! Results of tool calls.
//!
//! A result is text for the model with the same content as data, or an error with the next step.

use door_workspace::RoleError;
use door_workspace::WorkspaceError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};
use switchboard_actions::{Action, ActionError};
use switchboard_core::{
    AddressError, Kind, NameError, ResolveError, TaskNameError, clean, clean_value, quote_continuation,
};
use switchboard_hub::{HubError, WorkTreeError};
use switchboard_sys::disk::DiskFault;

use super::unread::Unread;

/// Result of a successful tool call.
#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    data: Map<String, Value>,
    /// True if the call did not change the caller's mailbox.
    is_mail_unchanged: bool,
}

/// Error of a failed tool call.
#[derive(Debug)]
pub(super) struct ToolError {
    text: String,
    next: Option<String>,
}

/// Outcome of a tool call.
pub(super) type Outcome = Result<Answer, ToolError>;

impl Answer {
    /// Creates a result from a text and an object with the same content.
    pub(super) fn new(text: impl Into<String>, data: Value) -> Self {
        let data = match data {
            Value::Object(data) => data,
            other => Map::from_iter([("result".to_owned(), other)]),
        };
        Self { text: text.into(), data, is_mail_unchanged: false }
    }

    /// Marks that the call did not change the caller's mailbox.
    pub(super) fn without_mail_changes(self) -> Self {
        Self { is_mail_unchanged: true, ..self }
    }

    pub(super) fn is_mail_unchanged(&self) -> bool {
        self.is_mail_unchanged
    }

    /// Returns the result as data, without the text.
    pub(super) fn into_data(self) -> Value {
        self.data.into()
    }
}

impl ToolError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), next: None }
    }

    /// Sets the next step that the error suggests.
    pub(super) fn next(mut self, step: impl Into<String>) -> Self {
        self.next = Some(step.into());
        self
    }

    /// Appends an alternative to the suggested next step.
    pub(super) fn or(mut self, step: &str) -> Self {
        self.next = Some(self.next.map_or_else(|| step.to_owned(), |next| format!("{next} {step}")));
        self
    }

    /// Formats the error and the next step as one text.
    pub(super) fn into_text(self) -> String {
        match self.next {
            Some(next) => format!("{}. {}", self.text.trim_end_matches('.'), next),
            None => self.text,
        }
    }
}

/// Converts an outcome to an MCP result, with the note about unread messages.
///
/// Sanitizes every text of every tool. An error may quote text from other agents, so all of its lines except the first
/// are quoted.
pub(super) fn to_call_result(outcome: Outcome, unread: Unread) -> CallToolResult {
    let (mut text, mut data, failed) = match outcome {
        Ok(answer) => {
            let mut data = Value::from(answer.data);
            clean_value(&mut data);
            (clean(&answer.text).into_owned(), data, false)
        }
        Err(problem) => {
            let problem = ToolError {
                text: quote_continuation(&problem.text),
                next: problem.next.map(|next| quote_continuation(&next)),
            };
            let data = json!({ "error": { "message": problem.text, "next": problem.next } });
            (problem.into_text(), data, true)
        }
    };
    if let Some(line) = unread.line() {
        text.push_str("\n\n");
        text.push_str(&line);
        data["unread"] = unread.count().into();
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(data);
    result.is_error = Some(failed);
    result
}

/// Adds a note that the workspace is degraded because of a disk fault, with the reason.
pub(super) fn add_degraded_note(mut result: CallToolResult, trouble: Option<DiskFault>) -> CallToolResult {
    let Some(trouble) = trouble else { return result };
    let line =
        format!("The workspace is degraded: {trouble}. Reading works; nothing can be sent until then.");
    result.content.push(ContentBlock::text(line));
    if let Some(data) = &mut result.structured_content {
        data["degraded"] = json!({ "code": trouble.kind.code(), "message": trouble.to_string() });
    }
    result
}

impl ToolError {
    /// Builds the tool error for a refused action.
    ///
    /// The error uses the tool's own names for the action's fields.
    pub(super) fn of(tool: &str, error: ActionError) -> Self {
        let action = Action::of_tool(tool);
        let argument =
            |field: &'static str| action.and_then(|action| action.argument(field)).unwrap_or(field);
        match error {
            ActionError::EmptyText => Self::new(format!("The argument '{}' is empty", argument("text")))
                .next("Say something, or send metadata."),
            ActionError::Empty { field } => {
                let next = match field {
                    "ids" => "Give the ids that check_inbox showed.",
                    "paths" => "Name the files that you will change.",
                    "input" => "Say what to type.",
                    _ => "Give it a value, or leave it out.",
                };
                Self::new(format!("The argument '{}' is empty", argument(field))).next(next)
            }
            ActionError::Invalid { field, problem } => {
                Self::new(format!("The argument '{}' {problem}", argument(field)))
            }
            ActionError::Conflict { first, second } => Self::new(format!(
                "The arguments '{}' and '{}' exclude each other",
                argument(first),
                argument(second)
            ))
            .next("Give one of them."),
            ActionError::ReplacesNoTask { .. } => {
                Self::new(error.to_string()).next("Leave out 'replace', or use the action delegate_task.")
            }
            ActionError::BadClaim { .. } => {
                Self::new(error.to_string()).next("Use the task and the fence that claim_task returned.")
            }
            ActionError::UnknownKind { .. } => {
                Self::new(error.to_string()).next(format!("Use one of {}.", Kind::ACTIONS.join(", ")))
            }
            ActionError::NotReserved { .. } => {
                Self::new(error.to_string()).next("get_team_roster lists reservations.")
            }
            ActionError::NotLocal { .. } => {
                Self::new(error.to_string()).next("get_team_roster lists the agents of this hub.")
            }
            ActionError::Workspace(error) => error.into(),
            ActionError::Name(error) => error.into(),
            ActionError::Task(error) => error.into(),
            ActionError::Tree(error) => error.into(),
        }
    }
}

impl From<WorkspaceError> for ToolError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Hub(error) => error.into(),
            WorkspaceError::Role(error @ RoleError::Unfilled { .. }) => {
                Self::new(error.to_string()).next("get_team_roster lists the agents and their roles.")
            }
            WorkspaceError::NoTerminal { .. } | WorkspaceError::NotOneTerminal { .. } => {
                Self::new(error.to_string()).next("Send it with the action delegate_task, which is mail.")
            }
            WorkspaceError::Lock(_) => {
                Self::new(error.to_string()).next("Another program is changing the state; try again.")
            }
            other => Self::new(other.to_string()),
        }
    }
}

impl From<HubError> for ToolError {
    fn from(error: HubError) -> Self {
        let (temporary, text) = (error.is_temporary(), error.to_string());
        match error {
            HubError::Unresolved(error) => error.into(),
            HubError::Conflict { .. } => {
                Self::new(text).next("Use another idempotencyKey for another message.")
            }
            HubError::BodyTooLarge { .. } | HubError::MetadataTooLarge { .. } => {
                Self::new(text).next("Write the content to a file of the workspace and send its path.")
            }
            HubError::UnknownMessage { .. } => {
                Self::new(text).next("check_inbox and search_messages give the ids of messages.")
            }
            HubError::ClaimHeld { own: Some(fence), .. } => {
                Self::new(text).next(format!("It is yours: go on, or renew_claim with fence {fence}."))
            }
            HubError::ClaimHeld { holder, .. } => {
                Self::new(text).next(format!("Take another task, or ask {holder}."))
            }
            HubError::StaleClaim { .. } => {
                Self::new(text).next("Nothing was done. Stop working on it, or claim_task again.")
            }
            HubError::LeaseTooLong { .. } => {
                Self::new(text).next("Use at most 1440 minutes, and renew before it expires.")
            }
            HubError::FilesReserved { taken } => {
                let holder = taken.first().map_or_else(String::new, |(_, by)| format!(" {}", by.holder));
                Self::new(text).next(format!("Work on other files, or ask{holder}."))
            }
            HubError::NotTheRecipient { .. } => {
                Self::new(text).next("Only its recipient can acknowledge a message.")
            }
            HubError::NameTaken { .. } | HubError::ReservedName { .. } => {
                Self::new(text).next("Choose another name.")
            }
            HubError::CompositeTeam { .. } => Self::new(text)
                .next("A composite team is one agent; create a team without composite for several."),
            HubError::NoSpace { .. } => {
                Self::new(text).next("Nothing was accepted. Tell the person that the disk is full.")
            }
            HubError::ReadOnly { .. } => {
                Self::new(text).next("Tell the person that the workspace is read-only.")
            }
            HubError::StoreDeleted { .. } => Self::new(text).next(
                "Tell the person; `switchboard init` makes a new workspace, and a new session works in it.",
            ),
            HubError::OutcomeUnknown { .. } => Self::new(text)
                .next("Check with search_messages whether it was sent before you send it again."),
            _ if temporary => Self::new(text).next("Try again."),
            _ => Self::new(text),
        }
    }
}

impl From<ResolveError> for ToolError {
    fn from(error: ResolveError) -> Self {
        let text = error.to_string();
        match error {
            ResolveError::UnknownAgent { near, .. } | ResolveError::UnknownTeam { near, .. }
                if !near.is_empty() =>
            {
                Self::new(text).next(format!("Did you mean {}?", near.join(" or ")))
            }
            ResolveError::UnknownAgent { known, .. } if !known.is_empty() => {
                /// Maximum number of known agents listed in the error; `get_team_roster` lists all of them.
                const SHOWN: usize = 20;
                let more = if known.len() > SHOWN { ", …" } else { "" };
                let shown: Vec<_> = known.into_iter().take(SHOWN).collect();
                Self::new(text).next(format!("Known agents: {}{more}.", shown.join(", ")))
            }
            ResolveError::UnknownTeam { .. } => Self::new(text).next("create_team makes one."),
            _ => Self::new(text).next("get_team_roster lists agents and teams."),
        }
    }
}

impl From<WorkTreeError> for ToolError {
    fn from(error: WorkTreeError) -> Self {
        Self::new(error.to_string()).next("A path is src/a.rs, docs/, src/**/*.rs or src/{a,b}.rs.")
    }
}

impl From<TaskNameError> for ToolError {
    fn from(error: TaskNameError) -> Self {
        Self::new(error.to_string()).next("A task has a name of 1 to 200 characters.")
    }
}

impl From<AddressError> for ToolError {
    fn from(error: AddressError) -> Self {
        Self::new(error.to_string())
            .next("An address is codex, team:backend, #general, alice@research, job:7/0 or all.")
    }
}

impl From<NameError> for ToolError {
    fn from(error: NameError) -> Self {
        Self::new(error.to_string())
    }
}
