//! Answers in the words of the older router.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::JobInfo;

/// Data of `swarm_launched`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmLaunched {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
    /// How many nodes.
    pub node_count: usize,
}

/// Data of `swarm_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmList {
    /// As asked.
    pub request_id: String,
    /// The jobs by their ids.
    pub swarms: BTreeMap<String, JobInfo>,
}

/// Data of `swarm_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmStatus {
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
