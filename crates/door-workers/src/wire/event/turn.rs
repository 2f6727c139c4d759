//! Events about an injection and the activity of its agent.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{EventNode, InjectionRef};
use crate::wire::command::Decision;

/// Data of `inject_ack` and `inject_delivered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Injection {
    /// The request id; for a message from another door, its id there.
    pub request_id: String,
    /// The client's name, or the door.
    pub client: String,
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
}

/// Data of `inject_failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectFailed {
    /// The injection.
    #[serde(flatten)]
    pub injection: Injection,
    /// The reason.
    pub error: String,
}

/// Data of `assistant`, `assistant_delta` and `reasoning_delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The text.
    pub content: String,
}

/// Data of `usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// Tokens used.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Tokens of the whole job so far.
    pub job_total_tokens: u64,
}

/// Token counts, as the agent reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Total.
    pub total_tokens: u64,
    /// Input tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Input tokens served from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

/// Data of `turn_complete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnComplete {
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// How the turn ended.
    pub status: TurnStatus,
    /// The reason, unless completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Data of `own_turn_complete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnTurnComplete {
    /// The own turn.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// How the turn ended.
    pub status: TurnStatus,
    /// The reason, unless completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The agent's last text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Tokens used; charged to no injection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Tokens>,
    /// Tokens of the whole job so far, including this turn.
    pub job_total_tokens: u64,
}

/// Status at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The agent has answered.
    Completed,
    /// The agent failed.
    Failed,
    /// The turn was interrupted.
    Interrupted,
    /// The turn exceeded a time limit.
    Timeout,
    /// The worker process or the router ended before the turn did.
    WorkerLost,
}

impl TurnStatus {
    /// Returns the wire name.
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
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The agent's item id.
    pub item_id: String,
    /// The command, or the tool with its title.
    pub command: String,
    /// The working folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Data of `command_completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandCompleted {
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The agent's item id.
    pub item_id: String,
    /// The command, or the tool with its title.
    pub command: String,
    /// Status in the agent's terms: `completed`, `failed`, `declined` …
    pub status: String,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Its output; only the end if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Data of `file_change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The agent's item id.
    pub item_id: String,
    /// Status in the agent's terms: `inProgress`, `completed`, `declined` …
    pub status: String,
    /// The changed files.
    pub changes: Vec<Change>,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its path.
    pub path: String,
    /// Kind of change in the agent's terms: `add`, `update`, `delete` …
    pub kind: String,
    /// The diff, if the agent reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Data of `approval_required`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequired {
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The approval id, for `approve`.
    pub approval_id: String,
    /// The question.
    #[serde(flatten)]
    pub question: Question,
    /// SHA-256 of the question, in hexadecimal: a client can compare what it shows with the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// When the question is declined.
    pub expires_at: String,
}

impl ApprovalRequired {
    /// Closes the approval because its turn has ended without a decision.
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

/// An action for which an agent asks permission.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// `command`, `file_change`, `permission` or `tool`.
    pub kind: String,
    /// The agent's item id of the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    /// One line for people.
    pub title: String,
    /// The full command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The working folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The agent's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The files with their diffs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The arguments of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Value>,
}

impl Question {
    /// Returns the SHA-256 of the question's JSON, in hexadecimal.
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
    /// The request id of the client that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The injection.
    #[serde(flatten)]
    pub at: InjectionRef,
    /// The approval id.
    pub approval_id: String,
    /// The decision.
    pub decision: Decision,
    /// Who decided: a client, `policy`, `timeout`, or `turn` if the turn ended first.
    pub by: String,
}

/// Data of `agent_error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentError {
    /// The node.
    #[serde(flatten)]
    pub node: EventNode,
    /// The injection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// The error.
    pub error: String,
    /// True if the agent retries by itself.
    #[serde(default)]
    pub will_retry: bool,
}
