//! `bench mcp`: cost of Switchboard behind an MCP host.
//!
//! Measures start, memory and calls of `switchboard mcp` compared with a minimal Node MCP server
//! (`baselines/server.mjs`), a message sent by a tool compared with a bare send, and the latency of a model that waits
//! for messages.

pub(crate) mod http;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod pipe;
mod rates;
mod send;
mod start;
mod wait;

use std::path::Path;

use serde_json::{Value, json};

use self::pipe::Server;
use crate::load::{READER, body, sender};
use crate::ours::{DoorPart, Serving};
use crate::program::build_shipped;
use crate::run_folder::RunFolder;

const BENCH: &str = "mcp";
const NODE: &str = "node_sdk_minimal_server";

/// Number and length of the measurements in a run.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Number of starts of each server.
    starts: usize,
    /// Number of runs per server, each of a thousand calls.
    memories: usize,
    /// Number of rounds of sending, and of messages in each round.
    sends: (usize, usize),
    wakes: usize,
    /// Number of rounds of calls, and of calls in each round.
    calls: (usize, usize),
}

const FULL: Extent = Extent { starts: 30, memories: 5, sends: (7, 200), wakes: 200, calls: (7, 2000) };

const QUICK: Extent = Extent { starts: 5, memories: 1, sends: (3, 80), wakes: 30, calls: (2, 300) };

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    build_shipped().await?;
    let node = node::server(place)?;
    let ours = fresh(place).await?;
    start::run(&ours, &node, extent.starts).await?;
    memory::run(&fresh(place).await?, &node, extent.memories).await?;
    send::run(place, extent.sends).await?;
    wait::run(place, extent.wakes).await?;
    rates::run(&node, place, extent.calls).await
}

/// Creates a new workspace; returns the `switchboard mcp` server of a sender in it.
async fn fresh(place: &RunFolder) -> anyhow::Result<Server> {
    let folder = place.fresh()?;
    workspace(&folder).await?;
    Ok(Server::ours(&sender(0), &folder))
}

/// Creates a workspace with one reader.
pub(crate) async fn workspace(folder: &Path) -> anyhow::Result<()> {
    Serving::create(folder, DoorPart::Nothing).await?.close().await
}

/// Returns the arguments of `send_message`, with the same message as in the other benchmarks.
pub(crate) fn message_arguments() -> Value {
    json!({ "recipient": READER, "action": "status_update", "payload": body() })
}
