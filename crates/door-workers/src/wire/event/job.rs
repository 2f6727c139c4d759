//! Events about jobs and nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EventNode;

/// Data of `node_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// The node.
    #[serde(flatten)]
    pub node: EventNode,
    /// Its state.
    pub status: NodeState,
    /// The running injection. Logged before the prompt is sent to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// Number of queued injections.
    pub queued: usize,
    /// Human-readable detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The worker process is starting.
    Starting,
    /// The node waits for an injection.
    Idle,
    /// A turn runs.
    Busy,
    /// The worker process has exited; it restarts after a backoff or with the next injection.
    Down,
    /// The worker process has exited too often.
    Failed,
    /// The job was terminated.
    Terminated,
}

impl NodeState {
    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Down => "down",
            Self::Failed => "failed",
            Self::Terminated => "terminated",
        }
    }
}

/// Data of `worker_exited`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerExited {
    /// The node.
    #[serde(flatten)]
    pub node: EventNode,
    /// How the process ended.
    pub reason: String,
    /// The last line on stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// Milliseconds until the restart; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_in_ms: Option<u64>,
}

/// Data of `job_launched`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobLaunched {
    /// The request id.
    pub request_id: String,
    /// The client that launched the job.
    pub client: String,
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
}

/// A job in events and answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobInfo {
    /// Its id.
    pub job_id: String,
    /// The agent of its nodes.
    pub agent: String,
    /// The owner of the launch.
    pub owner: String,
    /// `running` or `terminated`.
    pub status: String,
    /// When it was launched.
    pub launched_at: String,
    /// Tokens used so far.
    pub total_tokens: u64,
    /// Its nodes.
    pub nodes: Vec<NodeInfo>,
}

/// A node in events and answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeInfo {
    /// Its number.
    pub node_id: u32,
    /// Its agent name in the hub.
    pub agent_name: String,
    /// Its state.
    pub status: NodeState,
    /// Human-readable detail of the state, for example why the worker is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Number of queued injections.
    pub queued: usize,
    /// The running injection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// Its process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its working folder.
    pub cwd: String,
    /// Number of finished turns.
    pub turns: u64,
}

/// Data of `job_terminated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobTerminated {
    /// The request id.
    pub request_id: String,
    /// The job.
    pub job_id: String,
    /// Tokens used.
    pub total_tokens: u64,
}

/// Data of `budget_exceeded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetExceeded {
    /// The job.
    pub job_id: String,
    /// Tokens used.
    pub total_tokens: u64,
    /// The token budget.
    pub limit: u64,
}

/// Data of `jobs_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobsList {
    /// The request id.
    pub request_id: String,
    /// The jobs, oldest first.
    pub jobs: Vec<JobInfo>,
}

/// Data of `job_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobStatusReply {
    /// The request id.
    pub request_id: String,
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
}
