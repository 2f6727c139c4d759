//! Events in the words of the older router, for their schemas. They are made from ours at the edge of a session.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApprovalRequired, ApprovalResolved, JobInfo};
use crate::wire::command::AgentKind;

/// What a client hears that speaks the older router's words, where that is not what others hear.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum LegacyEvent {
    /// A job has begun: the answer to `swarm_launch`.
    SwarmLaunched(Swarm),
    /// The answer to `swarm_list`.
    SwarmList(SwarmList),
    /// The answer to `swarm_status`.
    SwarmStatus(Swarm),
    /// A job has ended: the answer to `swarm_terminate`.
    SwarmTerminated(SwarmTerminated),
    /// The agent asks whether it may.
    ExecApprovalRequired(Box<ExecApproval>),
    /// The agent has its answer: the answer to `approve_execution`.
    ExecApprovalResolved(ExecApprovalResolved),
    /// The answer to `queue_list`.
    QueueList(Queue),
    /// The same list, without a request's id.
    QueueUpdated(Queue),
    /// The answer to `approvals_list`.
    ApprovalsList(Approvals),
}

/// Data of `swarm_launched` and `swarm_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Swarm {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
    /// How many nodes.
    pub node_count: usize,
    /// `running` or `terminated`.
    pub status: String,
    /// Where it runs: `local`.
    pub provider: String,
    /// What runs on its nodes.
    pub agent_runtime: String,
}

/// Data of `swarm_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmList {
    /// As asked.
    pub request_id: String,
    /// The jobs by their ids.
    pub swarms: BTreeMap<String, ListedSwarm>,
}

/// A job in `swarm_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedSwarm {
    /// The job as others are told of it.
    #[serde(flatten)]
    pub job: JobInfo,
    /// How many nodes.
    pub node_count: usize,
    /// Where it runs: `local`.
    pub provider: String,
}

/// Data of `swarm_terminated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmTerminated {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
}

/// Data of `exec_approval_required`, and an approval that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecApproval {
    /// The question as others are told of it.
    #[serde(flatten)]
    pub required: ApprovalRequired,
    /// What to answer to.
    pub call_id: String,
    /// Decisions that `approve_execution` takes.
    pub available_decisions: Vec<String>,
}

/// Data of `exec_approval_resolved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecApprovalResolved {
    /// The answer as others are told of it.
    #[serde(flatten)]
    pub resolved: ApprovalResolved,
    /// What was answered.
    pub call_id: String,
    /// Whether the agent may.
    pub approved: bool,
}

/// Data of `queue_list` and `queue_updated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// As asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Those that wait, in the order in which they will run.
    pub items: Vec<QueueItem>,
}

/// An injection that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueItem {
    /// The injection.
    pub queue_id: String,
    /// As asked.
    pub request_id: String,
    /// The job.
    pub target_swarm_id: String,
    /// `nodes`.
    pub selector: String,
    /// The node.
    pub nodes: Vec<u32>,
    /// Its first line.
    pub content: String,
}

/// Data of `approvals_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approvals {
    /// As asked.
    pub request_id: String,
    /// A number that grows.
    pub approvals_version: u64,
    /// Those that wait, by job and node.
    pub approvals: BTreeMap<String, BTreeMap<String, Vec<ExecApproval>>>,
}

/// Data of `providers_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvidersList {
    /// As asked.
    pub request_id: String,
    /// Where workers can run.
    pub providers: Vec<Provider>,
}

/// Data of `project_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectList {
    /// As asked.
    pub request_id: String,
    /// Projects by id: always empty.
    pub projects: BTreeMap<String, String>,
}

/// Where workers can run, and what a launch there takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provider {
    /// What `swarm_launch` calls it in `provider`.
    pub id: String,
    /// For people.
    pub label: String,
    /// Its kind.
    pub backend: String,
    /// What the parameters are where a launch leaves them out.
    pub defaults: BTreeMap<String, String>,
    /// The parameters that `provider_params` takes.
    pub launch_fields: Vec<ProviderField>,
}

/// A parameter of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderField {
    /// Its name.
    pub key: String,
    /// For people.
    pub label: String,
    /// How it is chosen: `select`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its value where a launch leaves it out.
    pub default: String,
    /// Its values.
    pub options: Vec<ProviderOption>,
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderOption {
    /// For people.
    pub label: String,
    /// The value.
    pub value: AgentKind,
}
