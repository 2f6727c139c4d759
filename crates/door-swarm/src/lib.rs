//! Door 5: signed messages between owners over HTTPS.
//!
//! This crate implements the Agent Swarm Protocol 0.1.0. [`Swarms`] is the API of the command line and the tools;
//! [`run`] serves the endpoints, delivers what the hub hands over and refreshes rosters and keys. The crate
//! interoperates with implementations that check less, and trusts only signatures by keys of its roster. It knows
//! nothing of workspace files, channels, MCP or child processes.

pub mod wire;

mod admission;
mod agent_id;
mod announcements;
mod approval;
mod config;
mod contested_key;
mod context;
mod delivery;
mod endpoint;
mod endpoint_change;
mod error;
mod github;
mod health;
mod intake;
mod invite;
mod join_client;
mod join_server;
mod keys;
mod members;
mod model;
mod operations;
mod rate_limit;
mod refresh;
mod refusal;
mod roster;
mod run;
mod send;
mod server;
mod signing;
mod state;
mod store;
mod swarms;
mod timestamp;
mod tools;
mod translate;
mod wake;

pub use agent_id::{PeerId, PeerIdError};
pub use config::{Config, GitHub, Secret, SwarmLimits, Wake};
pub use contested_key::ContestedKey;
pub use context::SwarmMessage;
pub use endpoint::{Endpoint, EndpointError};
pub use endpoint_change::EndpointUpdate;
pub use error::SwarmError;
pub use health::HealthIssue;
pub use invite::{Invite, InviteError, InviteLink};
pub use join_client::JoinOutcome;
pub use keys::{KeyError, PublicKey, SecretKey};
pub use members::{ExcludedMembers, MemberConflict, Members};
pub use model::{
    EndpointChange, Handover, Identity, InviteRecord, Member, MembershipStatus, PendingJoin, Rotation, Swarm,
};
pub use operations::{
    CreatedInvite, INVITE_LIFETIME, ImportMode, ImportSummary, KeyConflict, RotationSummary,
};
pub use roster::AppliedUpdates;
pub use run::{run, start};
pub use send::{OutgoingMessage, encode_base64};
pub use state::{KnownKey, MembershipState, StateError, StateMember, SwarmMembership, SwarmSettings};
pub use swarms::Swarms;
pub use tools::{ToolAnswer, ToolSpec, tools};

#[cfg(test)]
mod test_peer;
#[cfg(test)]
mod tests;
