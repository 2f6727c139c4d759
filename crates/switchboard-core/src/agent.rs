//! Who takes part.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AddressError, Name};

/// A named participant: of this hub (`codex`), of another hub that it is linked with (`codex@office`), or of a
/// swarm that it has joined (`alice@research`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId {
    /// The agent's name, unique within its realm.
    pub name: Name,
    /// The hub or the swarm that the agent lives behind; `None` for an agent of this hub.
    pub realm: Option<Name>,
}

impl AgentId {
    /// An agent of this hub.
    pub fn local(name: Name) -> Self {
        Self { name, realm: None }
    }

    /// The person who owns this hub.
    pub fn human() -> Self {
        Self::local(Name::human())
    }

    /// Whether this is the person who owns this hub. A `human@elsewhere` is not.
    pub fn is_human(&self) -> bool {
        self.realm.is_none() && self.name.is_human()
    }

    /// Whether both are written alike, letter for letter. Those that differ in case alone are equal all the same.
    pub fn is_spelled_like(&self, other: &Self) -> bool {
        self.name.as_str() == other.name.as_str()
            && self.realm.as_ref().map(Name::as_str) == other.realm.as_ref().map(Name::as_str)
    }

    /// The spelling used to compare and to index: lower case.
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
