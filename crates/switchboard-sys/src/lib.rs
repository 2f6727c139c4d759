//! Operating system layer of the other crates: files, locks, processes, sockets and the clock.
//!
//! Every crate that touches a file, starts a program or asks for the time uses this crate: [`files::Dir`] writes
//! atomically and follows no symbolic link, [`process::Spawn`] starts programs whose descendants are killed with them,
//! and [`clock::Clock`] is a clock that tests can set. Linux-only calls are in [`platform`], with a portable fallback.
//!
//! This crate knows nothing of messages, agents or the journal.

pub mod blocking;
pub mod clock;
pub mod debounce;
pub mod disk;
pub mod file_watcher;
pub mod files;
pub mod git;
pub mod lineage;
pub mod lock;
pub mod platform;
pub mod process;
pub mod process_identity;
pub mod reaper;
pub mod service_lease;
pub mod socket;
pub mod write_timeout;
