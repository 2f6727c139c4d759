//! One way to reach an agent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AgentId, Door, Name, NodeId};

/// One way to reach an agent. A closed set: a new way is a new variant here, and the compiler shows
/// every place that has to know of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// A live MCP session that can be told of a message now.
    Session {
        /// The session's id.
        session: String,
    },
    /// A worker process that takes prompts.
    Worker(NodeId),
    /// The agent's mailbox folder in the workspace.
    Mailbox {
        /// Whose mailbox.
        agent: Name,
    },
    /// A channel the agent reads.
    Channel {
        /// The channel.
        channel: Name,
    },
    /// A peer of a swarm.
    Peer {
        /// The agent there; its realm is the swarm.
        agent: AgentId,
    },
    /// Another hub of the organisation, over NATS.
    Hub {
        /// The hub.
        hub: Name,
    },
}

impl Route {
    /// The door that owns this route.
    pub fn door(&self) -> Door {
        match self {
            Self::Session { .. } | Self::Mailbox { .. } => Door::Workspace,
            Self::Worker(_) => Door::Workers,
            Self::Channel { .. } => Door::Channels,
            Self::Peer { .. } => Door::Swarm,
            Self::Hub { .. } => Door::Nats,
        }
    }

    /// Which route is taken when an agent has several: the lowest. What reaches a working model at
    /// once comes before what waits in a folder; the network comes last.
    pub fn preference(&self) -> u8 {
        match self {
            Self::Session { .. } => 0,
            Self::Worker(_) => 1,
            Self::Mailbox { .. } => 2,
            Self::Channel { .. } => 3,
            Self::Hub { .. } => 4,
            Self::Peer { .. } => 5,
        }
    }
}

/// The word before the colon is what a receipt shows, so it names the way and not the protocol.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { session } => write!(f, "session:{session}"),
            Self::Worker(node) => write!(f, "worker:{}/{}", node.job, node.node),
            Self::Mailbox { agent } => write!(f, "mailbox:{agent}"),
            Self::Channel { channel } => write!(f, "channel:{channel}"),
            Self::Peer { agent } => write!(f, "peer:{agent}"),
            Self::Hub { hub } => write!(f, "hub:{hub}"),
        }
    }
}
