//! Support for integration tests: temporary workspaces, the binary as a process, fault injection.
//!
//! Start at [`Sandbox`]. Every wait has a timeout, every process is killed when its value is dropped, and every skipped
//! test prints the reason.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "test code: a panic is how a test says no"
)]

pub mod ca;
pub mod claude;
pub mod codex;
pub mod fault;
pub mod files;
pub mod fuse;
pub mod gemini;
pub mod http;
pub mod mcp;
pub mod model;
pub mod nats;
pub mod nginx;
pub mod pebble;
pub mod poll;
pub mod ports;
pub mod process;
mod redact;
mod sandbox;
mod test_server;
pub mod tools;

pub use process::Running;
pub use sandbox::{RunOutput, Sandbox, message_file};
pub use test_server::TestServer;
