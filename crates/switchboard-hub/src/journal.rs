//! The journal: all messages in order of acceptance, deduplicated, hash-chained and searchable.
//!
//! [`submit`] is the only code that appends a message.

pub(crate) mod audit;
pub(crate) mod chain;
pub(crate) mod extent;
pub(crate) mod maintenance;
pub(crate) mod reads;
pub(crate) mod repair;
pub(crate) mod search;
pub(crate) mod submit;
