//! MCP transports: stdio, streamable HTTP and the older HTTP+SSE, with one handler interface.
//!
//! [`serve_stdio`] serves the parent process over the standard streams. [`serve_http`] serves all clients that reach
//! the [`Listener`] and have the [`Token`]. Both support all protocol versions that `rmcp` knows, from 2024-11-05 to
//! 2026-07-28, and call an `rmcp::ServerHandler`, which gets the [`Caller`] of each request.
//!
//! Input is validated before `rmcp` receives it, so that invalid bytes get an answer and never end a session: see
//! `intake.rs` for messages and `http/admission.rs` for HTTP requests.
//!
//! Pass-through calls to a server behind us bypass `rmcp` as raw JSON: see `raw_calls.rs`.
//!
//! A running server can answer a session over stdio, with failover to the session's own process: see `attach.rs`.
//!
//! This crate does not depend on Switchboard's mailboxes or messages; those belong to the handler.

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
