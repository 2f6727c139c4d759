//! What can go wrong at the door.

use switchboard_core::{Name, NameError, sanitize_inline};
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

use crate::agent_id::{PeerId, PeerIdError};
use crate::endpoint::EndpointError;
use crate::invite::InviteError;
use crate::keys::KeyError;
use crate::ledger::Standing;
use crate::state::StateError;
use crate::wire::ReferenceError;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum SwarmError {
    /// The hub could not do what the door asked of it.
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
    /// A text is no agent's id.
    #[error(transparent)]
    PeerId(#[from] PeerIdError),
    /// A text is no endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A reference does not lead anywhere.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A text is no name.
    #[error("'{text}' cannot be what a swarm is called in addresses: {source}")]
    Realm {
        /// As given.
        text: String,
        /// Why not.
        source: NameError,
    },
    /// No agent of this hub takes part in swarms, or not that one.
    #[error("{}", match .agent { Some(agent) => format!("'{agent}' takes part in no swarm from here"), None => "no agent of this workspace takes part in swarms yet".to_owned() })]
    NoIdentity {
        /// The agent as given.
        agent: Option<String>,
    },
    /// Several agents of this hub take part, and it was not said which is meant.
    #[error("several agents take part in swarms from here: {}", .agents.join(", "))]
    WhichIdentity {
        /// All of them.
        agents: Vec<String>,
    },
    /// The agent is there already.
    #[error("'{agent}' takes part in swarms already, at {endpoint}")]
    IdentityExists {
        /// The agent.
        agent: PeerId,
        /// Where it is reached.
        endpoint: String,
    },
    /// No swarm of that name or id.
    #[error("no swarm is called '{swarm}' here")]
    UnknownSwarm {
        /// As given.
        swarm: String,
        /// What looks like it.
        near: Vec<String>,
    },
    /// Several swarms, or none, and it was not said which is meant.
    #[error("{}", match .swarms.as_slice() { [] => "there is no swarm here yet".to_owned(), swarms => format!("it was not said which swarm is meant: {}", swarms.join(", ")) })]
    WhichSwarm {
        /// All of them.
        swarms: Vec<String>,
    },
    /// The agent belongs to it no longer.
    #[error("'{swarm}' is over for this agent: {}", match .standing { Standing::Left => "it has left", Standing::Kicked => "it was removed", Standing::Dissolved => "it was dissolved", Standing::Active => "it is not" })]
    NotActive {
        /// The swarm.
        swarm: Name,
        /// Why.
        standing: Standing,
    },
    /// Only the master may do that.
    #[error("only the master of '{swarm}' may do that, and that is '{master}'")]
    NotMaster {
        /// The swarm.
        swarm: Name,
        /// Who is.
        master: PeerId,
    },
    /// The master cannot do that.
    #[error(
        "the master cannot leave '{swarm}'; hand it over with `switchboard swarm transfer`, or end it with `switchboard swarm dissolve`"
    )]
    MasterStays {
        /// The swarm.
        swarm: Name,
    },
    /// Nobody was asked to lead the swarm.
    #[error("nobody was asked to lead '{swarm}'")]
    NotHandingOver {
        /// The swarm.
        swarm: Name,
    },
    /// No member of that id.
    #[error("'{agent}' is not a member of '{swarm}'")]
    NotAMember {
        /// The swarm.
        swarm: Name,
        /// As given.
        agent: String,
        /// What looks like it.
        near: Vec<String>,
    },
    /// Nobody of that id waits for approval.
    #[error("'{agent}' does not wait for approval in '{swarm}'")]
    NotPending {
        /// The swarm.
        swarm: Name,
        /// As given.
        agent: String,
    },
    /// No invite of that digest.
    #[error("no invite of '{swarm}' begins with '{digest}', or several do")]
    UnknownInvite {
        /// The swarm.
        swarm: Name,
        /// As given.
        digest: String,
    },
    /// What a swarm is called in addresses is taken.
    #[error("'{realm}' is in use for another swarm or hub; choose another name with --as")]
    RealmTaken {
        /// The name.
        realm: Name,
    },
    /// Our agent is a member already.
    #[error("the agent is a member of '{swarm}' already")]
    AlreadyMember {
        /// The swarm.
        swarm: Name,
    },
    /// A value cannot be used.
    #[error("{field} {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The other side said no.
    #[error("{endpoint} refused: {message} ({status} {code})")]
    Refused {
        /// Who.
        endpoint: String,
        /// The status.
        status: u16,
        /// Its word for programs.
        code: String,
        /// Its sentence.
        message: String,
    },
    /// The other side's answer makes no sense, or proves that it is not who it should be.
    #[error("the answer of {endpoint} is refused: {}", sanitize_inline(.problem))]
    BadAnswer {
        /// Who.
        endpoint: String,
        /// What is wrong.
        problem: String,
    },
    /// What is kept in the hub cannot be read.
    #[error("what the hub has noted of '{key}' cannot be read: {problem}")]
    Damaged {
        /// Which note.
        key: String,
        /// What is wrong.
        problem: String,
    },
}

impl SwarmError {
    pub(crate) fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Field { field, problem: problem.into() }
    }

    /// Whether the same may succeed a little later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_temporary(),
            Self::Https(_) => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}

/// An error with its causes, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
