//! Door 3: agent processes, driven over NDJSON.
//!
//! Implements `codeswarm.router.v1` with extensions. [`Router`] is the principal type: [`serve`] serves one client on
//! any pair of streams, [`listen`] serves many clients on a socket, and [`run_deliveries`] turns messages for nodes
//! into injections. Workers speak each agent's own protocol: Codex, Claude Code, the Agent Client Protocol, or plain
//! text.
//!
//! This crate knows nothing of mailboxes, channels or MCP: their messages arrive through the hub.

mod client;
mod config;
#[cfg(test)]
mod crowd_tests;
mod delivery;
mod error;
mod intake;
mod job;
mod legacy;
mod lines;
mod listen;
mod log;
mod node;
mod presence;
mod router;
mod session;
#[cfg(test)]
mod test_message;
#[cfg(test)]
mod test_router;
mod turn;
pub mod wire;
mod worker;

pub use client::{Client, EndpointFile, Received};
pub use config::Config;
pub use delivery::run as run_deliveries;
pub use error::RouterError;
pub use listen::{Listener, listen};
pub use presence::{SERVICE, load_node_presence};
pub use router::Router;
pub use session::{Access, AccessToken, Transport, serve};
