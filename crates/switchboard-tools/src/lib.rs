//! MCP interface of a workspace: tools and resources for a model's mailbox.
//!
//! Implements the tools of the Switchboard Protocol on top of `switchboard-actions`. [`ToolServer`] is the handler
//! behind every MCP transport. Each instance serves one session, and a session acts for one agent: the agent that its
//! client was configured for, or the first agent that the session registers. A session can read only the messages of
//! that agent.

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
#[cfg(test)]
mod test_workspace;
mod tools;
mod unread;

pub use server::{ToolConfig, ToolServer};
pub use tools::{
    Profile, idempotency_argument, is_idempotent, is_immediate, list_tools, registers_agent, tool_names,
};
