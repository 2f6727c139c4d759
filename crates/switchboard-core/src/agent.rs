//! Agent ids: a name and, for agents of other hubs and owners, a realm.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AddressError, Name};

/// Id of a participant: `codex` on this hub, `codex@office` on a linked hub, `alice@research` in a joined swarm.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId {
    /// The agent's name, unique within its realm.
    pub name: Name,
    /// The linked hub or the swarm of the agent; `None` for an agent of this hub.
    pub realm: Option<Name>,
}

impl AgentId {
    /// Returns the id of an agent of this hub.
    pub fn local(name: Name) -> Self {
        Self { name, realm: None }
    }

    /// Returns the id of the person who owns this hub.
    pub fn human() -> Self {
        Self::local(Name::human())
    }

    /// Returns true if this is the person who owns this hub. The id `human@elsewhere` is another person.
    pub fn is_human(&self) -> bool {
        self.realm.is_none() && self.name.is_human()
    }

    /// Returns true if both have the same spelling, including case. `==` ignores case.
    pub fn is_spelled_like(&self, other: &Self) -> bool {
        self.name.as_str() == other.name.as_str()
            && self.realm.as_ref().map(Name::as_str) == other.realm.as_ref().map(Name::as_str)
    }

    /// Returns the lower-case spelling, used as a key for comparison and indexes.
    pub fn key(&self) -> String {
        self.to_string().to_ascii_lowercase()
    }
}

impl From<Name> for AgentId {
    fn from(name: Name) -> Self {
        Self::local(name)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.realm {
            None => write!(f, "{}", self.name),
            Some(realm) => write!(f, "{}@{realm}", self.name),
        }
    }
}

impl FromStr for AgentId {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let bad = |source| AddressError::Name { text: text.to_owned(), source };
        let (name, realm) = match text.rsplit_once('@') {
            Some((name, realm)) => (name, Some(Name::parse(realm).map_err(bad)?)),
            None => (text, None),
        };
        Ok(Self { name: Name::parse(name).map_err(bad)?, realm })
    }
}

impl TryFrom<String> for AgentId {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> Self {
        id.to_string()
    }
}
