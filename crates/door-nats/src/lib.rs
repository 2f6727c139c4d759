//! The link between the hubs of one organisation, over NATS JetStream.
//!
//! Each hub keeps its own journal; [`run`] reads it from a cursor and publishes what concerns other hubs, takes in
//! what they published through the hub's own way in, and tells and hears who lives where and who is awake. With NATS
//! away everything local goes on, and what is for others waits in the journal. Knows nothing of mailboxes, channels,
//! MCP or peers.
//!
//! Written against servers from 2.9 on; `docs/scaling.md` has the subjects and the sizing.

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
