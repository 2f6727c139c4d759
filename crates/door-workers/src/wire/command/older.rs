//! Payloads in the words of the older router, for their schemas. They are read as ours, under other names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentKind, Decision};

/// Payload of `swarm_launch`. It may have what `launch` has as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmLaunch {
    /// How many nodes, 1 to 64; one without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Standing instructions, for agents that take them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
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
    pub worker_mode: Option<AgentKind>,
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
    /// The answer in our words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}
