//! Errors of the swarm door.

use switchboard_core::{Name, NameError, sanitize_inline};
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

use crate::agent_id::{PeerId, PeerIdError};
use crate::endpoint::EndpointError;
use crate::invite::InviteError;
use crate::keys::KeyError;
use crate::model::MembershipStatus;
use crate::state::StateError;
use crate::wire::ReferenceError;

/// Reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum SwarmError {
    /// The hub failed.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An invite is refused.
    #[error(transparent)]
    Invite(#[from] InviteError),
    /// A state file is refused.
    #[error(transparent)]
    State(#[from] StateError),
    /// The listener or the client failed.
    #[error(transparent)]
    Https(#[from] switchboard_https::Error),
    /// A text is not an agent's id.
    #[error(transparent)]
    PeerId(#[from] PeerIdError),
    /// A text is not an endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A reference is invalid.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The given text is not a valid realm, which is the name of a swarm in addresses.
    #[error("'{text}' cannot be a swarm's name in addresses: {source}")]
    Realm {
        /// The text as given.
        text: String,
        /// The naming rule that the text breaks.
        source: NameError,
    },
    /// No agent of this hub takes part in swarms, or the named agent does not.
    #[error("{}", match .agent { Some(agent) => format!("'{agent}' takes part in no swarm from here"), None => "no agent of this workspace takes part in swarms yet".to_owned() })]
    NoIdentity {
        /// The agent as given.
        agent: Option<String>,
    },
    /// Several agents of this hub take part in swarms, and none was named.
    #[error("several agents take part in swarms from here: {}", .agents.join(", "))]
    WhichIdentity {
        /// Ids of the agents that take part.
        agents: Vec<String>,
    },
    /// The agent takes part in swarms already.
    #[error("'{agent}' takes part in swarms already, at {endpoint}")]
    IdentityExists {
        /// The agent.
        agent: PeerId,
        /// The agent's endpoint.
        endpoint: String,
    },
    /// No swarm has this name or id.
    #[error("no swarm is called '{swarm}' here")]
    UnknownSwarm {
        /// The name as given.
        swarm: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// No swarm was named, and there are several swarms or none.
    #[error("{}", match .swarms.as_slice() { [] => "there is no swarm here yet".to_owned(), swarms => format!("several swarms match; name one of: {}", swarms.join(", ")) })]
    WhichSwarm {
        /// Names of the swarms in addresses.
        swarms: Vec<String>,
    },
    /// The agent no longer belongs to the swarm.
    #[error("this agent is not in '{swarm}': {}", match .status { MembershipStatus::Left => "it has left", MembershipStatus::Kicked => "it was removed", MembershipStatus::Dissolved => "it was dissolved", MembershipStatus::Active => "it is not" })]
    NotActive {
        /// The swarm.
        swarm: Name,
        /// How the membership ended.
        status: MembershipStatus,
    },
    /// Only the master may do this.
    #[error("only the master of '{swarm}' may do that: '{master}'")]
    NotMaster {
        /// The swarm.
        swarm: Name,
        /// The master.
        master: PeerId,
    },
    /// The master cannot leave or be removed.
    #[error(
        "the master cannot leave '{swarm}'; hand it over with `switchboard swarm transfer`, or end it with `switchboard swarm dissolve`"
    )]
    MasterCannotLeave {
        /// The swarm.
        swarm: Name,
    },
    /// No transfer of the master role is open.
    #[error("no transfer of '{swarm}' is pending")]
    NoOpenTransfer {
        /// The swarm.
        swarm: Name,
    },
    /// The swarm has no such member.
    #[error("'{agent}' is not a member of '{swarm}'")]
    NotAMember {
        /// The swarm.
        swarm: Name,
        /// The member as given.
        agent: String,
        /// Similar ids.
        near: Vec<String>,
    },
    /// No such candidate waits for approval.
    #[error("'{agent}' does not wait for approval in '{swarm}'")]
    NotPending {
        /// The swarm.
        swarm: Name,
        /// The candidate as given.
        agent: String,
    },
    /// No invite, or more than one, has this digest prefix.
    #[error("no invite of '{swarm}' begins with '{digest}', or several do")]
    UnknownInvite {
        /// The swarm.
        swarm: Name,
        /// The prefix as given.
        digest: String,
    },
    /// The chosen name of the swarm in addresses is taken.
    #[error("'{realm}' is in use for another swarm or hub; choose another name with --as")]
    RealmTaken {
        /// The name.
        realm: Name,
    },
    /// Our agent is already a member.
    #[error("the agent is a member of '{swarm}' already")]
    AlreadyMember {
        /// The swarm.
        swarm: Name,
    },
    /// A field has an invalid value.
    #[error("{field} {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// Why the value is invalid.
        problem: String,
    },
    /// The peer refused the request.
    #[error("{endpoint} refused: {message} ({status} {code})")]
    Refused {
        /// The peer's endpoint.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The error code.
        code: String,
        /// The peer's message.
        message: String,
    },
    /// The peer's answer is malformed, or the peer is not the expected one.
    #[error("the answer of {endpoint} is refused: {}", sanitize_inline(.problem))]
    BadAnswer {
        /// The peer's endpoint.
        endpoint: String,
        /// Why the answer is refused.
        problem: String,
    },
    /// Key of the record in the hub's notes.
    #[error("the stored record '{key}' cannot be read: {problem}")]
    Damaged {
        /// Key of the note.
        key: String,
        /// The parse error.
        problem: String,
    },
}

impl SwarmError {
    pub(crate) fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Field { field, problem: problem.into() }
    }

    /// Returns true if a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_temporary(),
            Self::Https(_) => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
