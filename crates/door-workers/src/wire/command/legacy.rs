//! Payloads of the legacy dialect, for their schemas. They are parsed as current payloads with other field names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AgentKind;

/// Payload of `swarm_launch`. All fields of `launch` are accepted as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmLaunch {
    /// How many nodes, 1 to 64; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The first prompt of every node; ignored if blank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Standing instructions, for agents that support them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_md_content: Option<String>,
    /// `local`, or omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The agent to run on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentKind>,
    /// Parameters that can name the agent instead; default `codex`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_params: Option<ProviderParams>,
}

/// The supported parameters of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderParams {
    /// The agent to run on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_mode: Option<WorkerMode>,
    /// The model, for agents that support a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sandbox mode in the agent's terms. Refused for a client without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_mode: Option<String>,
    /// Approval policy in the agent's terms. Refused for a client without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<String>,
}

/// An agent, or `mock`, which is `echo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkerMode {
    /// An agent.
    Agent(AgentKind),
    /// The legacy name of `echo`.
    Mock(Mock),
}

/// The value `mock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mock {
    /// The value `mock`.
    Mock,
}

/// Payload of `swarm_status` and `swarm_terminate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmRef {
    /// The job.
    pub swarm_id: String,
}

/// Payload of `approve_execution`, with one of the two decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApproveExecution {
    /// The approval id from `approval_required`.
    pub call_id: String,
    /// True to accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    /// The decision. If it is not a known value, `approved` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
}
