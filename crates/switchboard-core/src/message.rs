//! What is sent.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Address, AddressError, AgentId, Kind, MessageId, Name, Route};

/// The key in a message's metadata that says that no link is to bring it to other hubs, although it did not come in by
/// one: it lay in a folder that hubs share, and another, which is named where that is known, brings it to them; or it is
/// history, which is news to nobody.
pub const PASSED_ON: &str = "switchboard.passed_on";

/// The key in the metadata of a message from another hub that names the channel it was posted in there. Whom it is for
/// is another matter: a post to one agent stands in the channel for everyone.
pub const POSTED_IN: &str = "switchboard.posted_in";

/// An immutable message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its identity within and between hubs.
    pub id: MessageId,
    /// Who wrote it.
    pub from: AgentId,
    /// Whom it is for.
    pub to: Address,
    /// What it is for.
    pub kind: Kind,
    /// The text.
    pub body: String,
    /// The message it answers.
    pub in_reply_to: Option<MessageId>,
    /// The first message of its conversation; its own id when it starts one.
    pub thread: MessageId,
    /// When it was written.
    pub sent_at: Timestamp,
    /// When it stops being of use.
    pub expires_at: Option<Timestamp>,
    /// Whatever else its door or its sender wants to carry along.
    pub metadata: Map<String, Value>,
    /// Where it came in.
    pub origin: Origin,
    /// The agents and hubs of the reply chain before it, oldest first, since a person last spoke.
    pub via: Vec<Hop>,
    /// The exact bytes that were signed, where the content is signed.
    pub signed: Option<Vec<u8>>,
}

impl Message {
    /// Whether another hub accepted it first. That one brings it to all others, so it goes to no further hub from here.
    pub fn is_of_another_hub(&self) -> bool {
        matches!(self.origin.route, Some(Route::Hub { .. })) || self.metadata.contains_key(PASSED_ON)
    }

    /// The hub that accepted it first, where that is another one and it is known which: by the link that brought it, or by the
    /// file that it was found in.
    pub fn other_hub(&self) -> Option<Name> {
        match &self.origin.route {
            Some(Route::Hub { hub }) => Some(hub.clone()),
            Some(Route::Channel { .. }) => Name::parse(self.metadata.get(PASSED_ON)?.as_str()?).ok(),
            _ => None,
        }
    }

    /// The channel that it was posted in, here or on the hub that it comes from. Only a link is believed about the latter.
    pub fn posted_in(&self) -> Option<Name> {
        match &self.origin.route {
            Some(Route::Channel { channel }) => Some(channel.clone()),
            Some(Route::Hub { .. }) => Name::parse(self.metadata.get(POSTED_IN)?.as_str()?).ok(),
            _ => None,
        }
    }
}

/// Where a message came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its identity in the protocol it came in by.
    pub native: NativeId,
    /// Whether the door could establish that `from` really wrote it.
    pub verified: bool,
    /// The route it came in by: it is never sent out by that route again.
    pub route: Option<Route>,
}

/// The identity of a message in one published protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NativeId {
    /// The protocol.
    pub door: Door,
    /// Within what the id is unique: a mailbox, a channel, a swarm. Empty where the id says it all.
    pub scope: String,
    /// The id as the protocol spells it.
    pub id: String,
}

/// The five published protocols through which messages come and go, and the link between hubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// Mailboxes, by MCP tools, files or the command line.
    Workspace,
    /// Channel files and watchers.
    Channels,
    /// Agent processes behind the NDJSON router.
    Workers,
    /// Signed messages between owners.
    Swarm,
    /// Other hubs of one organisation.
    Nats,
}

/// One station of a reply chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Hop {
    /// An agent wrote a message of the chain.
    Agent(AgentId),
    /// A hub passed it on.
    Hub(Name),
}

impl Door {
    /// All doors.
    pub const ALL: [Self; 5] = [Self::Workspace, Self::Channels, Self::Workers, Self::Swarm, Self::Nats];

    /// The door's name in output and in the journal.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Channels => "channels",
            Self::Workers => "workers",
            Self::Swarm => "swarm",
            Self::Nats => "nats",
        }
    }

    /// The door with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.as_str() == name)
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => agent.fmt(f),
            Self::Hub(hub) => write!(f, "hub:{hub}"),
        }
    }
}

impl FromStr for Hop {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix("hub:") {
            None => text.parse().map(Self::Agent),
            Some(hub) => Name::parse(hub)
                .map(Self::Hub)
                .map_err(|source| AddressError::Name { text: text.to_owned(), source }),
        }
    }
}

impl TryFrom<String> for Hop {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Hop> for String {
    fn from(hop: Hop) -> Self {
        hop.to_string()
    }
}
