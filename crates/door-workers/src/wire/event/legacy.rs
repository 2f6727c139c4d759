//! Events of the legacy dialect, for their schemas. The session translates current events into these.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApprovalRequired, ApprovalResolved, JobInfo};
use crate::wire::command::AgentKind;

/// Events that differ in the legacy dialect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum LegacyEvent {
    /// Answer to `swarm_launch`: a job was launched.
    SwarmLaunched(Swarm),
    /// Answer to `swarm_list`.
    SwarmList(SwarmList),
    /// Answer to `swarm_status`.
    SwarmStatus(Swarm),
    /// Answer to `swarm_terminate`: a job was terminated.
    SwarmTerminated(SwarmTerminated),
    /// The agent asks for an approval.
    ExecApprovalRequired(Box<ExecApproval>),
    /// Answer to `approve_execution`: an approval was decided.
    ExecApprovalResolved(ExecApprovalResolved),
    /// Answer to `queue_list`.
    QueueList(Queue),
    /// The same list without a request id.
    QueueUpdated(Queue),
    /// Answer to `approvals_list`.
    ApprovalsList(Approvals),
}

/// Data of `swarm_launched` and `swarm_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Swarm {
    /// The request id.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
    /// Number of nodes.
    pub node_count: usize,
    /// `running` or `terminated`.
    pub status: String,
    /// The provider: `local`.
    pub provider: String,
    /// The agent of its nodes.
    pub agent_runtime: String,
}

/// Data of `swarm_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmList {
    /// The request id.
    pub request_id: String,
    /// The jobs by id.
    pub swarms: BTreeMap<String, ListedSwarm>,
}

/// A job in `swarm_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedSwarm {
    /// The job in the current dialect.
    #[serde(flatten)]
    pub job: JobInfo,
    /// Number of nodes.
    pub node_count: usize,
    /// The provider: `local`.
    pub provider: String,
}

/// Data of `swarm_terminated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmTerminated {
    /// The request id.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
}

/// Data of `exec_approval_required`, and an open approval in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecApproval {
    /// The approval in the current dialect.
    #[serde(flatten)]
    pub required: ApprovalRequired,
    /// The approval id.
    pub call_id: String,
    /// Decisions that `approve_execution` accepts.
    pub available_decisions: Vec<String>,
}

/// Data of `exec_approval_resolved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecApprovalResolved {
    /// The decision in the current dialect.
    #[serde(flatten)]
    pub resolved: ApprovalResolved,
    /// The approval id.
    pub call_id: String,
    /// True if the decision allows the action.
    pub approved: bool,
}

/// Data of `queue_list` and `queue_updated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// The request id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Queued injections in the order in which they will run.
    pub items: Vec<QueueItem>,
}

/// A queued injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueItem {
    /// The injection id.
    pub queue_id: String,
    /// The request id.
    pub request_id: String,
    /// The job.
    pub target_swarm_id: String,
    /// Always `nodes`.
    pub selector: String,
    /// The node.
    pub nodes: Vec<u32>,
    /// First line of the prompt.
    pub content: String,
}

/// Data of `approvals_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approvals {
    /// The request id.
    pub request_id: String,
    /// A version number that grows with every change.
    pub approvals_version: u64,
    /// Open approvals by job and node.
    pub approvals: BTreeMap<String, BTreeMap<String, Vec<ExecApproval>>>,
}

/// Data of `providers_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvidersList {
    /// The request id.
    pub request_id: String,
    /// The providers.
    pub providers: Vec<Provider>,
}

/// Data of `project_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectList {
    /// The request id.
    pub request_id: String,
    /// Projects by id: always empty.
    pub projects: BTreeMap<String, String>,
}

/// A provider and its launch options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provider {
    /// Its id, used as `provider` of `swarm_launch`.
    pub id: String,
    /// Human-readable name.
    pub label: String,
    /// Its kind.
    pub backend: String,
    /// Default values of the parameters.
    pub defaults: BTreeMap<String, String>,
    /// The supported parameters of `provider_params`.
    pub launch_fields: Vec<ProviderField>,
}

/// A parameter of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderField {
    /// Its name.
    pub key: String,
    /// Human-readable name.
    pub label: String,
    /// Input kind: `select`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its default value.
    pub default: String,
    /// Its possible values.
    pub options: Vec<ProviderOption>,
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderOption {
    /// Human-readable name.
    pub label: String,
    /// The value.
    pub value: AgentKind,
}
