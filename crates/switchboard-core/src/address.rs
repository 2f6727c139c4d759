//! Addresses: the parsed form of a message's "to".

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AgentId, Name, NameError};

/// Address of a message: one agent, one worker node, or a group.
///
/// The syntax is the same everywhere: `codex`, `alice@research`, `team:backend`, `#general`, `job:272900/0`,
/// `job:272900`, `all`, `all@research`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// One agent.
    Agent(AgentId),
    /// The agent that runs as one node of a job.
    Node(NodeId),
    /// Every member of a group.
    Group(GroupId),
}

/// Group of agents that one message can address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GroupId {
    /// The members of a team.
    Team(Name),
    /// The members of a channel.
    Channel(Name),
    /// All nodes of a job.
    Job(JobId),
    /// Every agent of this hub and of its linked hubs.
    Everyone,
    /// Every other member of a swarm that this hub takes part in.
    Swarm(Name),
}

/// Id of a router job: 1 to 64 letters, digits, `_` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobId(String);

/// Id of one node of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId {
    /// The job.
    pub job: JobId,
    /// The node's number within the job, from 0.
    pub node: u32,
}

/// Error of parsing an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A part of the address is not a valid name.
    #[error("'{}' is not an address: {source}", .text.escape_debug())]
    Name {
        /// The complete address as given.
        text: String,
        /// Reason why the name is not valid.
        source: NameError,
    },
    /// A job id is empty, too long, or has characters outside `[A-Za-z0-9_-]`.
    #[error("'{}' is not an address: a job id has 1 to 64 letters, digits, '_' or '-'", .text.escape_debug())]
    Job {
        /// The complete address as given.
        text: String,
    },
    /// The node after `job:ID/` is not a number.
    #[error("'{}' is not an address: the node after '/' is a number, 0 or more", .text.escape_debug())]
    Node {
        /// The complete address as given.
        text: String,
    },
}

impl JobId {
    /// Validates `text` as a job id.
    pub fn parse(text: &str) -> Option<Self> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let fits = (1..=64).contains(&text.len());
        (fits && text.bytes().all(legal)).then(|| Self(text.to_owned()))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Address {
    /// Address of every agent of this hub and of its linked hubs.
    pub const EVERYONE: Self = Self::Group(GroupId::Everyone);

    /// Returns the agent if this is the address of one agent.
    pub fn as_agent(&self) -> Option<&AgentId> {
        match self {
            Self::Agent(agent) => Some(agent),
            Self::Node(_) | Self::Group(_) => None,
        }
    }
}

impl From<AgentId> for Address {
    fn from(agent: AgentId) -> Self {
        Self::Agent(agent)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let name = |part: &str| {
            Name::parse(part).map_err(|source| AddressError::Name { text: text.to_owned(), source })
        };
        if text.eq_ignore_ascii_case("all") {
            return Ok(Self::EVERYONE);
        }
        if let Some((all, swarm)) = text.split_once('@')
            && all.eq_ignore_ascii_case("all")
        {
            return Ok(Self::Group(GroupId::Swarm(name(swarm)?)));
        }
        if let Some(team) = text.strip_prefix("team:") {
            return Ok(Self::Group(GroupId::Team(name(team)?)));
        }
        if let Some(channel) = text.strip_prefix('#') {
            return Ok(Self::Group(GroupId::Channel(name(channel)?)));
        }
        if let Some(job) = text.strip_prefix("job:") {
            let parse_job = |id: &str| JobId::parse(id).ok_or(AddressError::Job { text: text.to_owned() });
            return match job.split_once('/') {
                None => Ok(Self::Group(GroupId::Job(parse_job(job)?))),
                Some((job, node)) => {
                    let node = node.parse().map_err(|_| AddressError::Node { text: text.to_owned() })?;
                    Ok(Self::Node(NodeId { job: parse_job(job)?, node }))
                }
            };
        }
        text.parse().map(Self::Agent)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => agent.fmt(f),
            Self::Node(node) => node.fmt(f),
            Self::Group(group) => group.fmt(f),
        }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Team(team) => write!(f, "team:{team}"),
            Self::Channel(channel) => write!(f, "#{channel}"),
            Self::Job(job) => write!(f, "job:{job}"),
            Self::Everyone => f.write_str("all"),
            Self::Swarm(swarm) => write!(f, "all@{swarm}"),
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job:{}/{}", self.job, self.node)
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
