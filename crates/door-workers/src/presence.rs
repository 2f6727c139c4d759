//! Nodes as agents that are awake.
//!
//! The router gives the signs of life of its nodes itself. Another process has heard none of them; it reads what was
//! noted of each job, and takes it for true as long as a router runs.

use switchboard_core::{AgentId, Door, Heartbeat};
use switchboard_hub::Hub;

use crate::error::RouterError;
use crate::job::JobRecord;
use crate::router::JOBS;
use crate::wire::event::NodeState;

/// The right to be the one router of a hub, by the name under which it is claimed.
pub const SERVICE: &str = "router";

/// Tells this process what the nodes of the hub's router do, where one runs.
pub async fn load_node_presence(hub: &Hub) -> Result<(), RouterError> {
    if hub.service_holder(SERVICE)?.is_none() {
        return Ok(());
    }
    let records = hub.notes(Door::Workers, JOBS).await?;
    let readable = records.iter().filter_map(|(_, record)| serde_json::from_str::<JobRecord>(record).ok());
    for record in readable.filter(|record| record.terminated_at.is_none()) {
        for (node, name) in (0..).zip(record.names) {
            let state = record.states.get(&node).copied().unwrap_or(NodeState::Starting);
            hub.record_heartbeat(Heartbeat {
                agent: AgentId::local(name),
                at: hub.now(),
                status: state.as_str().to_owned(),
                message: None,
            });
        }
    }
    Ok(())
}
