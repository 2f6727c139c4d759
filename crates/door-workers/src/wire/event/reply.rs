//! Answers to commands, and events for one client alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApprovalRequired, Injection, InjectionRef};

/// Data of `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HelloReply {
    /// The request id.
    pub request_id: String,
    /// The server's name.
    pub server: String,
    /// Its version.
    pub version: String,
    /// The supported protocols.
    pub protocols: Vec<String>,
    /// The supported commands.
    pub commands: Vec<String>,
    /// The supported agents.
    pub agents: Vec<String>,
    /// Maximum length of a line, in bytes.
    pub max_line: usize,
    /// The oldest retained event.
    pub oldest_seq: u64,
    /// The newest event.
    pub newest_seq: u64,
    /// The name of this client.
    pub client: String,
}

/// Data of `command_rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRejected {
    /// The request id, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Human-readable reason.
    pub reason: String,
    /// Machine-readable reason.
    pub code: RejectCode,
    /// The invalid field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// Reason for the rejection of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RejectCode {
    /// The line exceeds the length limit.
    LineTooLong,
    /// The line is not UTF-8.
    NotUtf8,
    /// The line is not JSON.
    InvalidJson,
    /// The line is JSON, but not an object.
    NotAnObject,
    /// `protocol` is missing or has another value.
    WrongProtocol,
    /// A field is missing or invalid.
    BadField,
    /// The command does not exist.
    UnknownCommand,
    /// The `request_id` was used for another command.
    DuplicateRequestId,
    /// The job does not exist.
    UnknownJob,
    /// The job has no such node.
    UnknownNode,
    /// The approval does not exist or is already decided.
    UnknownApproval,
    /// The client lacks the permission.
    NotAllowed,
    /// The state does not allow it: nothing to interrupt or to steer.
    NotNow,
    /// The job was terminated.
    JobOver,
    /// The queue of the node is full.
    QueueFull,
    /// The job has used its token budget.
    OverBudget,
    /// The agent cannot be started.
    CannotStart,
    /// The cursor is older than the oldest retained event.
    CursorExpired,
    /// The journal could not be written; nothing was accepted.
    NotAccepted,
}

/// Data of `interrupt_ack` and `steer_ack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectionReply {
    /// The request id.
    pub request_id: String,
    /// The turn.
    #[serde(flatten)]
    pub at: InjectionRef,
}

/// Data of `approvals_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalsList {
    /// The request id.
    pub request_id: String,
    /// Open approvals, oldest first.
    pub approvals: Vec<ApprovalRequired>,
}

/// Data of `queue_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// The request id.
    pub request_id: String,
    /// Queued injections in the order in which they will run.
    pub queue: Vec<Queued>,
}

/// A queued injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queued {
    /// The injection.
    #[serde(flatten)]
    pub injection: Injection,
    /// First line of the prompt.
    pub title: String,
}

/// Data of `subscribed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscribed {
    /// The request id.
    pub request_id: String,
    /// Events after this one follow.
    pub from_seq: u64,
    /// The subscribed jobs; absent for all jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
}

/// Data of `heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// Number of running jobs.
    pub jobs: usize,
    /// Number of running turns.
    pub busy: usize,
}

/// Data of `cut_off`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CutOff {
    /// The reason.
    pub reason: String,
    /// The cursor to resubscribe from.
    pub resume_from: u64,
}
