//! Payloads in the words of the older router, for their schemas. They are read as ours, under other names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AgentKind;

/// Payload of `swarm_launch`. It may have what `launch` has as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmLaunch {
    /// How many nodes, 1 to 64; one without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The first prompt of every node; none where it is blank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Standing instructions, for agents that take them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_md_content: Option<String>,
    /// `local`, or left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What to run on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentKind>,
    /// Where the agent stands otherwise; `codex` without either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_params: Option<ProviderParams>,
}

/// The parameters of a provider, as far as they are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderParams {
    /// What to run on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_mode: Option<WorkerMode>,
    /// The model, for agents that let it be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What an agent may do unasked, in its own words. Not of a client without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_mode: Option<String>,
    /// When an agent asks, in its own words. Not of a client without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<String>,
}

/// An agent, or `mock`, which is `echo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkerMode {
    /// An agent.
    Agent(AgentKind),
    /// The older router's word for `echo`.
    Mock(Mock),
}

/// The word `mock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mock {
    /// The word `mock`.
    Mock,
}

/// Payload of `swarm_status` and `swarm_terminate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmRef {
    /// The job.
    pub swarm_id: String,
}

/// Payload of `approve_execution`, with one of the two answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApproveExecution {
    /// Which approval, from `approval_required`.
    pub call_id: String,
    /// Yes or no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    /// The answer in more words. What is none of ours is read by `approved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
}
