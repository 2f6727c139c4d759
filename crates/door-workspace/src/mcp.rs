//! The MCP side of the workspace: tools and resources for a model's mailbox.
//!
//! [`ToolServer`] is the handler behind every MCP transport. Each instance serves one session, and a session acts for
//! one agent: the one that its client was configured for, or the first one that it registers. It reads only that
//! agent's mail.

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
