//! Routes to an agent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AgentId, Door, Name, NodeId};

/// Route to an agent.
///
/// The set is closed, so that the compiler reports every match that a new variant affects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// A live MCP session that can be notified of a message at once.
    Session {
        /// The session's id.
        session: String,
    },
    /// A worker process that takes prompts.
    Worker(NodeId),
    /// The agent's mailbox folder in the workspace.
    Mailbox {
        /// Owner of the mailbox.
        agent: Name,
    },
    /// A channel that the agent reads.
    Channel {
        /// The channel.
        channel: Name,
    },
    /// A peer in a swarm.
    Peer {
        /// Id of the agent at the peer; its realm is the swarm.
        agent: AgentId,
    },
    /// Another hub of the same organisation, over NATS.
    Hub {
        /// The hub.
        hub: Name,
    },
}

impl Route {
    /// Returns the door that serves this route.
    pub fn door(&self) -> Door {
        match self {
            Self::Session { .. } | Self::Mailbox { .. } => Door::Workspace,
            Self::Worker(_) => Door::Workers,
            Self::Channel { .. } => Door::Channels,
            Self::Peer { .. } => Door::Swarm,
            Self::Hub { .. } => Door::Nats,
        }
    }

    /// Returns the preference of the route. The lowest number is preferred.
    ///
    /// Routes that reach a running model at once come before folders, and the network comes last.
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

/// Formats a route as `KIND:TARGET`.
///
/// Receipts show the word before the colon, so the word names the kind of route and not the protocol.
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
