//! Answers to commands, and what is for one client alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApprovalRequired, Injection, InjectionRef};

/// Data of `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HelloReply {
    /// As asked.
    pub request_id: String,
    /// The program.
    pub server: String,
    /// Its version.
    pub version: String,
    /// The protocols it speaks.
    pub protocols: Vec<String>,
    /// The commands it knows.
    pub commands: Vec<String>,
    /// The agents it can run.
    pub agents: Vec<String>,
    /// The longest line it takes, in bytes.
    pub max_line: usize,
    /// The oldest event that can still be had.
    pub oldest_seq: u64,
    /// The newest event.
    pub newest_seq: u64,
    /// The name that this client goes by.
    pub client: String,
}

/// Data of `command_rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRejected {
    /// As asked, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What is wrong, for people.
    pub reason: String,
    /// What is wrong, for programs.
    pub code: RejectCode,
    /// The field it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// Why a command was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RejectCode {
    /// The line is longer than the router reads.
    LineTooLong,
    /// The line is not UTF-8.
    NotUtf8,
    /// The line is not JSON.
    InvalidJson,
    /// The line is JSON, but not an object.
    NotAnObject,
    /// `protocol` is missing or another one.
    WrongProtocol,
    /// A field is missing, or is not what it has to be.
    BadField,
    /// No such command.
    UnknownCommand,
    /// The same `request_id` was used for something else.
    DuplicateRequestId,
    /// No such job.
    UnknownJob,
    /// No such node in the job.
    UnknownNode,
    /// No such approval, or somebody has answered it.
    UnknownApproval,
    /// The client may not do that.
    NotAllowed,
    /// It cannot be done in this state: nothing to interrupt, nothing to steer.
    NotNow,
    /// The job was terminated.
    JobOver,
    /// As many wait as may wait.
    QueueFull,
    /// The job has used the tokens that it may.
    OverBudget,
    /// The agent cannot be started.
    CannotStart,
    /// The events asked for are not kept any more.
    CursorExpired,
    /// The journal could not be written. Nothing was accepted.
    NotAccepted,
}

/// Data of `interrupt_ack` and `steer_ack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectionReply {
    /// As asked.
    pub request_id: String,
    /// Which turn.
    #[serde(flatten)]
    pub at: InjectionRef,
}

/// Data of `approvals_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalsList {
    /// As asked.
    pub request_id: String,
    /// Those that wait, the oldest first.
    pub approvals: Vec<ApprovalRequired>,
}

/// Data of `queue_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// As asked.
    pub request_id: String,
    /// Those that wait, in the order in which they will run.
    pub queue: Vec<Queued>,
}

/// An injection that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queued {
    /// The injection.
    #[serde(flatten)]
    pub injection: Injection,
    /// Its first line.
    pub title: String,
}

/// Data of `subscribed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscribed {
    /// As asked.
    pub request_id: String,
    /// The events after this one follow.
    pub from_seq: u64,
    /// Only of these jobs; of all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
}

/// Data of `heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// How many jobs run.
    pub jobs: usize,
    /// How many turns run.
    pub busy: usize,
}

/// Data of `cut_off`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CutOff {
    /// Why.
    pub reason: String,
    /// What to subscribe from.
    pub resume_from: u64,
}
