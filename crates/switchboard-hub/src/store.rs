//! SQLite behind the hub: one writer thread with group commit, a few readers.

pub(crate) mod adopt;
pub(crate) mod binding;
pub(crate) mod chain;
pub(crate) mod finish;
pub(crate) mod gather;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod readers;
pub(crate) mod recover;
mod refused;
pub(crate) mod rows;
mod salvage;
pub(crate) mod search;
pub(crate) mod side_files;
pub(crate) mod writer;
