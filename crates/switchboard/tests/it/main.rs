//! The binary and the crates behind it, from outside: as a person, a script or another program uses them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "test code: a panic is how a test says no"
)]

mod architecture;
mod attach;
mod channels;
mod child;
mod cli;
mod crash;
mod degraded;
mod disk_full;
mod faces;
mod grid;
mod loops;
mod mcp;
mod nats;
mod person;
mod reaching;
mod rendering;
mod repository;
mod router;
mod shutdown;
mod soak;
mod steady;
mod store_faults;
mod storm;
mod suite_config;
mod suite_wrap;
mod suites;
mod swarm;
mod terminal;
mod tmux;
mod wake;

use test_support::Sandbox;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_switchboard");

/// Creates an empty folder.
fn bare() -> Sandbox {
    Sandbox::bare(BINARY)
}

/// Creates a workspace with the agents `codex` and `claude`.
fn workspace() -> Sandbox {
    Sandbox::with_agents(BINARY, &["codex", "claude"])
}
