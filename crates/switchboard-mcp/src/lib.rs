//! MCP sessions: stdio, streamable HTTP and the older HTTP+SSE, on one kind of handler.
//!
//! The crate ends MCP transports. [`serve_stdio`] serves the program at the other end of our pipes,
//! [`serve_http`] everybody who reaches the [`Listener`] and knows the [`Token`]. Both speak every revision
//! that `rmcp` knows, from 2024-11-05 to 2026-07-28, and both put an `rmcp::ServerHandler` behind it; who is at
//! the other end is told to that handler as a [`Caller`].
//!
//! What arrives is checked here before `rmcp` sees it, so that bad bytes get an answer and never end a
//! session: see `intake.rs` for what a message has to be, `http/guard.rs` for what a request has to be.
//!
//! Calls that only pass through to a server behind us go past `rmcp`, as they were written: see `raw_calls.rs`.
//!
//! A session over stdio can be answered by a server that runs already, and go on without it: see `attach.rs`.
//!
//! It knows nothing of mailboxes or messages of Switchboard: what the tools do is the handler's business.

mod arguments;
mod attach;
mod caller;
mod config;
mod error;
mod http;
#[cfg(test)]
mod http_tests;
mod intake;
mod listener;
mod panics;
mod raw_calls;
mod server_info;
mod stdio;
mod token;

pub use arguments::{ArgumentError, out_of_range, validate_arguments};
pub use attach::{
    Attachment, Connection, Hello, InProcessServer, Liveness, ToolTraits, attach, probe, serve_attached,
    serve_stdio_attached,
};
pub use caller::{AGENT_HEADER, Caller, Transport, response_closed};
pub use config::{HttpConfig, PortChoice};
pub use error::McpError;
pub use http::serve_http;
pub use listener::Listener;
pub use raw_calls::{NoRawCalls, RawCall, RawCallHandler, RawList, offer_raw_calls};
pub use server_info::ServerInfo;
pub use stdio::{input as standard_input, output as standard_output, serve_stdio};
pub use token::{Token, random_id, read_token, write_token};
