//! NATS JetStream link between the hubs of one organisation.
//!
//! Each hub has its own journal. [`run`] publishes the journal's messages for other hubs from a cursor, ingests their
//! messages through the hub's own intake, and exchanges rosters and presence. While NATS is unreachable, the hub
//! continues to work locally, and messages for other hubs stay in the journal. This crate knows nothing of mailboxes,
//! channels, MCP or peers.
//!
//! It works with NATS servers from version 2.9 on; `docs/scaling.md` describes the subjects and the sizing.

mod claims;
mod config;
mod connection;
mod cursor;
mod delivery;
mod error;
mod hubs;
mod identity;
mod intake;
mod interest;
mod presence;
mod publisher;
mod receipts;
mod replay;
mod roster;
mod run;
mod session;
mod status;
mod subject;
mod translate;
mod wire;

pub use config::{Auth, Config, ConfigError, Secret, Tls};
pub use connection::{ProbeReport, probe};
pub use error::NatsError;
pub use run::run;
pub use status::{LinkState, Status, load_remote_presence};
