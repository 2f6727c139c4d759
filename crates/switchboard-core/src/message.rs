//! Messages, their origin and their reply chain.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Address, AddressError, AgentId, Kind, MessageId, Name, Route};

/// Metadata key of a message that the hub must not relay, although the message did not arrive over a link.
///
/// There are two cases. The message was found in a folder that hubs share, and another hub relays it; then the value
/// names that hub where it is known. Or the message is history, which no other hub needs.
pub const NO_RELAY: &str = "switchboard.passed_on";

/// Metadata key for the channel in which another hub's message was posted on that hub.
///
/// The channel is independent of the address: a post to one agent is visible to every reader of the channel.
pub const POSTED_IN: &str = "switchboard.posted_in";

/// An immutable message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Id of the message, the same on every hub.
    pub id: MessageId,
    /// The sender.
    pub from: AgentId,
    /// The address.
    pub to: Address,
    /// The kind.
    pub kind: Kind,
    /// The text.
    pub body: String,
    /// The message that this one answers.
    pub in_reply_to: Option<MessageId>,
    /// The first message of the conversation; the message's own id if it starts one.
    pub thread: MessageId,
    /// When the message was written.
    pub sent_at: Timestamp,
    /// When the message expires.
    pub expires_at: Option<Timestamp>,
    /// Additional data from the door or the sender.
    pub metadata: Map<String, Value>,
    /// How the message arrived.
    pub origin: Origin,
    /// Reply chain: the agents and hubs before this message since a person last wrote, oldest first.
    pub via: Vec<Hop>,
    /// The exact signed bytes, if the content is signed.
    pub signed: Option<Vec<u8>>,
}

impl Message {
    /// Returns true if another hub accepted the message first. That hub relays it to all others, so this hub does not.
    pub fn is_from_other_hub(&self) -> bool {
        matches!(self.origin.route, Some(Route::Hub { .. })) || self.metadata.contains_key(NO_RELAY)
    }

    /// Returns the other hub that accepted the message first, if the link or file that delivered the message names it.
    pub fn origin_hub(&self) -> Option<Name> {
        match &self.origin.route {
            Some(Route::Hub { hub }) => Some(hub.clone()),
            Some(Route::Channel { .. }) => Name::parse(self.metadata.get(NO_RELAY)?.as_str()?).ok(),
            _ => None,
        }
    }

    /// Returns the channel in which the message was posted, on this hub or on its origin hub.
    ///
    /// A channel of the origin hub is trusted only if the message arrived over a link.
    pub fn posted_in(&self) -> Option<Name> {
        match &self.origin.route {
            Some(Route::Channel { channel }) => Some(channel.clone()),
            Some(Route::Hub { .. }) => Name::parse(self.metadata.get(POSTED_IN)?.as_str()?).ok(),
            _ => None,
        }
    }
}

/// Origin of a message: how it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Id in the protocol by which the message arrived.
    pub native: NativeId,
    /// True if the door verified that `from` wrote the message.
    pub verified: bool,
    /// The inbound route, by which the message is never sent out again.
    pub route: Option<Route>,
}

/// Id of a message in one published protocol, used to deduplicate the message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NativeId {
    /// The protocol.
    pub door: Door,
    /// Scope in which the id is unique, such as a mailbox, channel or swarm. Empty if the id is globally unique.
    pub scope: String,
    /// The id as the protocol spells it.
    pub id: String,
}

/// Door by which messages arrive and leave: a published protocol or the link between hubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// Mailboxes: MCP tools, files and the command line.
    Workspace,
    /// Channel files and watchers.
    Channels,
    /// Agent processes behind the NDJSON router.
    Workers,
    /// Signed messages between owners.
    Swarm,
    /// Other hubs of the same organisation.
    Nats,
}

/// One hop of a reply chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Hop {
    /// An agent wrote a message of the chain.
    Agent(AgentId),
    /// A hub relayed the message.
    Hub(Name),
}

impl Door {
    /// All doors.
    pub const ALL: [Self; 5] = [Self::Workspace, Self::Channels, Self::Workers, Self::Swarm, Self::Nats];

    /// Returns the door's name in output and in the journal.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Channels => "channels",
            Self::Workers => "workers",
            Self::Swarm => "swarm",
            Self::Nats => "nats",
        }
    }

    /// Returns the door with this name.
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
