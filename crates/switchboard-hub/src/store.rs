//! SQLite storage: one writer thread with group commit, and a few read connections.

pub(crate) mod adopt;
pub(crate) mod batch;
pub(crate) mod binding;
pub(crate) mod cache;
mod catch_panic;
pub(crate) mod commit;
mod database_file;
pub(crate) mod degraded;
pub(crate) mod open;
pub(crate) mod open_store;
pub(crate) mod readers;
pub(crate) mod recover;
mod rollback;
pub(crate) mod rows;
mod salvage;
pub(crate) mod side_files;
mod wal_frames;
pub(crate) mod wal_monitor;
pub(crate) mod writer;
