//! What the integration tests stand on: temporary workspaces, the binary as a process, faults on purpose.
//!
//! Start at [`Sandbox`]. Everything that waits has a deadline, every process that was started here
//! ends with the value that stands for it, and nothing is skipped without saying why.
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
mod served;
pub mod tools;

pub use process::Running;
pub use sandbox::{Ran, Sandbox, message_file};
pub use served::Served;
