//! What becomes of an injection, and what the agent does meanwhile.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{EventNode, InjectionRef};
use crate::wire::command::Decision;

/// Data of `inject_ack` and `inject_delivered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Injection {
    /// As asked. Of a message that came by another door, its id there.
    pub request_id: String,
    /// Who asked: the client's name, or the door.
    pub client: String,
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
}

/// Data of `inject_failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectFailed {
    /// The injection.
    #[serde(flatten)]
    pub injection: Injection,
    /// Why.
    pub error: String,
}

/// Data of `assistant`, `assistant_delta` and `reasoning_delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The text.
    pub content: String,
}

/// Data of `usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// What was used.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// What the whole job has used so far.
    pub job_total_tokens: u64,
}

/// Tokens, as far as the agent tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// All of them.
    pub total_tokens: u64,
    /// Read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

/// Data of `turn_complete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnComplete {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// How it ended.
    pub status: TurnStatus,
    /// Why, unless it was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Data of `own_turn_complete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnTurnComplete {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// How it ended.
    pub status: TurnStatus,
    /// Why, unless it was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the agent said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// What was used; no injection is charged for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Tokens>,
    /// What the whole job has used so far, this turn included.
    pub job_total_tokens: u64,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The agent has answered.
    Completed,
    /// The agent could not.
    Failed,
    /// Somebody stopped it.
    Interrupted,
    /// It took too long.
    Timeout,
    /// The agent's process, or the router's, ended before the turn did.
    WorkerLost,
}

impl TurnStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Timeout => "timeout",
            Self::WorkerLost => "worker_lost",
        }
    }
}

/// Data of `command_started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandStarted {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The agent's id for it.
    pub item_id: String,
    /// The command, or the tool and its title.
    pub command: String,
    /// The folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Data of `command_completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandCompleted {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The agent's id for it.
    pub item_id: String,
    /// The command, or the tool and its title.
    pub command: String,
    /// The agent's word for how it ended: `completed`, `failed`, `declined` …
    pub status: String,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// What it wrote, the end of it where that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Data of `file_change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The agent's id for it.
    pub item_id: String,
    /// The agent's word for how far it is: `inProgress`, `completed`, `declined` …
    pub status: String,
    /// The files.
    pub changes: Vec<Change>,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its path.
    pub path: String,
    /// The agent's word for the change: `add`, `update`, `delete` …
    pub kind: String,
    /// The difference, where the agent tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Data of `approval_required`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequired {
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// What to answer to.
    pub approval_id: String,
    /// What it is about.
    #[serde(flatten)]
    pub question: Question,
    /// SHA-256 of everything that is asked for, in hexadecimal. Who shows it can be compared with the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// When the answer will be no.
    pub expires_at: String,
}

impl ApprovalRequired {
    /// The turn is over, and nobody has answered.
    pub(crate) fn into_cancelled(self) -> ApprovalResolved {
        ApprovalResolved {
            request_id: None,
            at: self.at,
            approval_id: self.approval_id,
            decision: Decision::Cancel,
            by: "turn".to_owned(),
        }
    }
}

/// What an agent asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// `command`, `file_change`, `permission` or `tool`.
    pub kind: String,
    /// The agent's id for what it wants to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    /// In a line, for people.
    pub title: String,
    /// The whole command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The agent's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The files and their differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The arguments of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Value>,
}

impl Question {
    /// SHA-256 of its JSON, in hexadecimal.
    pub fn hash(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut hash = String::with_capacity(64);
        for byte in Sha256::digest(json) {
            let _ = write!(hash, "{byte:02x}");
        }
        hash
    }
}

/// Data of `approval_resolved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalResolved {
    /// Of the client that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Where.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// Which one.
    pub approval_id: String,
    /// The answer.
    pub decision: Decision,
    /// Who gave it: a client, `policy`, `timeout` or `turn`, when the turn ended first.
    pub by: String,
}

/// Data of `agent_error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentError {
    /// Which node.
    #[serde(flatten)]
    pub node: EventNode,
    /// In which turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// What went wrong.
    pub error: String,
    /// Whether the agent tries again by itself.
    #[serde(default)]
    pub will_retry: bool,
}
