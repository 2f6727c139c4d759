//! SQLite behind the hub: one writer thread with group commit, a few readers.

pub(crate) mod adopt;
pub(crate) mod binding;
mod caught;
pub(crate) mod chain;
pub(crate) mod cut_log;
pub(crate) mod degraded;
pub(crate) mod finish;
pub(crate) mod gather;
mod in_place;
mod log_frames;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod open_store;
pub(crate) mod readers;
pub(crate) mod recover;
mod refused;
pub(crate) mod rows;
mod salvage;
pub(crate) mod search;
pub(crate) mod side_files;
pub(crate) mod writer;
