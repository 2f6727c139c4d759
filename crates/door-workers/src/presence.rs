//! Presence of the router's nodes as agents of the hub.
//!
//! The router announces its nodes itself. Other processes read the saved job records instead, and trust these while a
//! router runs.

use switchboard_core::{AgentId, Door, Heartbeat};
use switchboard_hub::Hub;

use crate::error::RouterError;
use crate::job::JobRecord;
use crate::router::JOBS;
use crate::wire::event::NodeState;

/// Name of the hub service whose lease makes a process the only running router.
pub const SERVICE: &str = "router";

/// Loads the presence of the router's nodes into this process, if a router runs.
pub async fn load_node_presence(hub: &Hub) -> Result<(), RouterError> {
    if hub.services().holder(SERVICE)?.is_none() {
        return Ok(());
    }
    let records = hub.notes(Door::Workers).all(JOBS).await?;
    let readable = records.iter().filter_map(|(_, record)| serde_json::from_str::<JobRecord>(record).ok());
    for record in readable.filter(|record| record.terminated_at.is_none()) {
        for (node, name) in (0..).zip(record.names) {
            let state = record.states.get(&node).copied().unwrap_or(NodeState::Starting);
            hub.agents().record_heartbeat(Heartbeat {
                agent: AgentId::local(name),
                at: hub.now(),
                status: state.as_str().to_owned(),
                message: None,
            });
        }
    }
    Ok(())
}
