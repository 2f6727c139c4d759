//! Door 5: signed messages between owners over HTTPS.
//!
//! Implements the Agent Swarm Protocol 0.1.0. [`Swarms`] is what the command line and the tools use; [`run`] serves
//! the endpoints, sends what the hub hands over and keeps rosters current. Interoperates with implementations that
//! check less, and believes nothing that is not signed by a key its roster knows. Knows nothing of files of a
//! workspace, channels, MCP or child processes.

pub mod wire;

mod agent_id;
mod canonical;
mod endpoint;
mod invite;
mod keys;
mod signing;
mod stamp;
mod state;
mod strict;

pub use agent_id::{PeerId, PeerIdError};
pub use endpoint::{Endpoint, EndpointError};
pub use invite::{Invite, InviteError, InviteLink};
pub use keys::{KeyError, PublicKey, SecretKey};
pub use state::{KnownKey, MembershipState, StateError, StateMember, SwarmMembership, SwarmSettings};
