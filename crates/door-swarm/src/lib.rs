//! Door 5: signed messages between owners over HTTPS.
//!
//! Implements the Agent Swarm Protocol 0.1.0. [`Swarms`] is what the command line and the tools use; [`run`] serves
//! the endpoints, sends what the hub hands over and keeps rosters current. Interoperates with implementations that
//! check less, and believes nothing that is not signed by a key its roster knows. Knows nothing of files of a
//! workspace, channels, MCP or child processes.

pub mod wire;

mod admit;
mod agent_id;
mod announce;
mod approval;
mod book;
mod canonical;
mod config;
mod contest;
mod context;
mod delivery;
mod endpoint;
mod error;
mod github;
mod health;
mod intake;
mod invite;
mod joining;
mod joins;
mod keeper;
mod keys;
mod ledger;
mod limits;
mod members;
mod moves;
mod operations;
mod problem;
mod roster;
mod run;
mod send;
mod server;
mod signing;
mod stamp;
mod state;
mod strict;
mod swarms;
mod tools;
mod translate;
mod wake;

pub use agent_id::{PeerId, PeerIdError};
pub use config::{Config, GitHub, Secret, SwarmLimits, Wake};
pub use contest::Contest;
pub use context::Seen;
pub use endpoint::{Endpoint, EndpointError};
pub use error::SwarmError;
pub use health::Ailment;
pub use invite::{Invite, InviteError, InviteLink};
pub use joining::JoinOutcome;
pub use keys::{KeyError, PublicKey, SecretKey};
pub use ledger::{
    EndpointChange, Handover, Identity, InviteRecord, Member, PendingJoin, Rotation, Standing, Swarm,
};
pub use members::{Clash, LeftOut, Members};
pub use moves::EndpointSet;
pub use operations::{INVITE_LIFETIME, Imported, KeptKey, Made, Merge, Rotated};
pub use roster::Orders;
pub use run::{run, start};
pub use send::{Letter, base64};
pub use state::{KnownKey, MembershipState, StateError, StateMember, SwarmMembership, SwarmSettings};
pub use swarms::Swarms;
pub use tools::{ToolAnswer, ToolSpec, tools};

#[cfg(test)]
mod test_peer;
#[cfg(test)]
mod tests;
