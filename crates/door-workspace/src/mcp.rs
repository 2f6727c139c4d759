//! The MCP side of the workspace: tools and resources by which a model uses its mailbox.
//!
//! [`ToolServer`] is the handler behind every MCP transport. One of them serves one session, and a session
//! speaks for one agent: the one its client was configured for, or the first it registers. It reads that
//! agent's mail and nobody else's.

mod answer;
mod arguments;
#[cfg(test)]
mod bounds_tests;
mod external_tools;
mod resources;
mod server;
mod session;
mod session_owners;
#[cfg(test)]
mod test_server;
mod tools;
mod unread;

pub use server::{ToolConfig, ToolServer};
pub use tools::{Profile, idempotency_argument, is_idempotent, is_immediate, registers_agent, tool_names};
