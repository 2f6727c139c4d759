//! How jobs and their nodes are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EventNode;

/// Data of `node_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Which node.
    #[serde(flatten)]
    pub node: EventNode,
    /// How it is.
    pub status: NodeState,
    /// What it is busy with. Written before the agent is given the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// How many injections wait.
    pub queued: usize,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its process starts.
    Starting,
    /// It waits for an injection.
    Idle,
    /// A turn runs.
    Busy,
    /// Its process has ended, and is started again with the next injection or after a pause.
    Down,
    /// Its process has ended too often.
    Failed,
    /// The job is over.
    Terminated,
}

impl NodeState {
    /// The word for it.
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
    /// Which node.
    #[serde(flatten)]
    pub node: EventNode,
    /// How.
    pub reason: String,
    /// The last line it wrote to stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// In how many milliseconds it is started again; not at all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_in_ms: Option<u64>,
}

/// Data of `job_launched`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobLaunched {
    /// As asked.
    pub request_id: String,
    /// Who asked.
    pub client: String,
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
}

/// A job, as it is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobInfo {
    /// Its id.
    pub job_id: String,
    /// Its id once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// What runs on its nodes.
    pub agent: String,
    /// Who launched it.
    pub owner: String,
    /// `running` or `terminated`.
    pub status: String,
    /// When it was launched.
    pub launched_at: String,
    /// What it has used so far.
    pub total_tokens: u64,
    /// Its nodes.
    pub nodes: Vec<NodeInfo>,
}

/// A node, as it is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeInfo {
    /// Its number.
    pub node_id: u32,
    /// Its name as an agent of the hub.
    pub agent_name: String,
    /// How it is.
    pub status: NodeState,
    /// Why, where there is more to say, for instance why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How many injections wait.
    pub queued: usize,
    /// What it is busy with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where it works.
    pub cwd: String,
    /// How many turns it has ended.
    pub turns: u64,
}

/// Data of `job_terminated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobTerminated {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub job_id: String,
    /// The job once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// What it has used.
    pub total_tokens: u64,
}

/// Data of `budget_exceeded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetExceeded {
    /// The job.
    pub job_id: String,
    /// What it has used.
    pub total_tokens: u64,
    /// What it may use.
    pub limit: u64,
}

/// Data of `jobs_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobsList {
    /// As asked.
    pub request_id: String,
    /// The jobs, the oldest first.
    pub jobs: Vec<JobInfo>,
}

/// Data of `job_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobStatusReply {
    /// As asked.
    pub request_id: String,
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
}
