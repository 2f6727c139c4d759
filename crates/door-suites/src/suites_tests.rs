//! Suites with real child processes.

mod calls;
mod flat;
mod guarded;
mod listing;
mod rig;
mod watching;
