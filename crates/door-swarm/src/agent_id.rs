//! What agents are called in a swarm.

use std::fmt;

use serde::{Deserialize, Serialize};
use switchboard_core::Name;

/// The words of the field `type`. They stand between recipient and content in what is signed.
const TYPE_WORDS: [&str; 3] = ["message", "system", "notification"];

/// The recipient that stands for everybody.
pub(crate) const BROADCAST: &str = "broadcast";

/// Words of ours: a member of that id would be taken for a person, for this program, or for everybody.
const RESERVED: [&str; 7] = ["system", "switchboard", "human", "all", "me", "root", "admin"];

/// Longest id: what a name of ours can hold.
const MAX_BYTES: usize = 128;

/// An agent's id in a swarm: letters, digits, `_`, `.` and `-`, at most 128 of them.
///
/// Ids differ by case, unlike our names, because that is how others compare them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerId(String);

/// Why a text is not the id of an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerIdError {
    /// Empty, too long, or with other characters.
    #[error("agent_id '{}' is refused: use 1 to {MAX_BYTES} letters, digits, '_', '.' or '-'", .text.chars().take(40).collect::<String>().escape_debug())]
    Shape {
        /// As given.
        text: String,
    },
    /// An id that begins with the word for everybody.
    #[error(
        "agent_id '{text}' is refused: it begins with 'broadcast', which stands for everybody; choose another"
    )]
    Broadcast {
        /// As given.
        text: String,
    },
    /// An id that is a word of ours.
    #[error("agent_id '{text}' is refused: it is a reserved word; choose another")]
    Reserved {
        /// As given.
        text: String,
    },
    /// An id that a command line would take for an option.
    #[error("agent_id '{text}' is refused: it begins with '-'; choose another")]
    Dash {
        /// As given.
        text: String,
    },
    /// An id that cannot be a name here.
    #[error("agent_id '{text}' is refused: {reason}")]
    NoName {
        /// As given.
        text: String,
        /// What is wrong with it as a name.
        reason: switchboard_core::NameError,
    },
}

impl PeerId {
    /// Parses a text that another program wrote: characters and length alone.
    pub fn parse(text: &str) -> Result<Self, PeerIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(PeerIdError::Shape { text: text.to_owned() })
        }
    }

    /// Parses an id that an agent wants to take: one that a member may have, and that is also a name here.
    pub fn parse_new(text: &str) -> Result<Self, PeerIdError> {
        let id = Self::parse_member(text)?;
        match Name::parse(text) {
            Ok(_) => Ok(id),
            Err(reason) => Err(PeerIdError::NoName { text: text.to_owned(), reason }),
        }
    }

    /// Parses an id that a member may have.
    pub fn parse_member(text: &str) -> Result<Self, PeerIdError> {
        let id = Self::parse(text)?;
        id.check_member()?;
        Ok(id)
    }

    /// Checks that a member may have this id. The one rule for joins, rosters, state files and `init`.
    pub(crate) fn check_member(&self) -> Result<(), PeerIdError> {
        let text = || self.0.clone();
        let begins = self.0.get(..BROADCAST.len()).is_some_and(|start| start.eq_ignore_ascii_case(BROADCAST));
        if begins {
            return Err(PeerIdError::Broadcast { text: text() });
        }
        if self.0.starts_with('-') {
            return Err(PeerIdError::Dash { text: text() });
        }
        if RESERVED.iter().any(|word| word.eq_ignore_ascii_case(&self.0)) {
            return Err(PeerIdError::Reserved { text: text() });
        }
        Ok(())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name that goes with it, where it is one.
    pub fn name(&self) -> Option<Name> {
        Name::parse(&self.0).ok()
    }

    /// True if one swarm cannot hold both ids: their signatures are ambiguous, or they are one name here.
    pub fn clashes_with(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0) || self.is_ambiguous_with(other)
    }

    /// True if a signature for one of two different ids can be read as one for the other.
    ///
    /// The signed bytes are recipient, type and content without a separator (§4.4): `bob` + `message` + `system…` is
    /// also `bobmessage` + `system` + `…`, and `bob` + `system` + `essage…` is also `bobsyste` + `message` + `…`. Two ids
    /// are ambiguous exactly where an id and a type word of one are a prefix of an id and a type word of the other.
    pub(crate) fn is_ambiguous_with(&self, other: &Self) -> bool {
        let (short, long) = if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        let Some(rest) = long.0.strip_prefix(&short.0).filter(|rest| !rest.is_empty()) else { return false };
        TYPE_WORDS.iter().any(|first| {
            TYPE_WORDS.iter().any(|second| {
                let (first, second) = (first.bytes(), rest.bytes().chain(second.bytes()));
                first.zip(second).all(|(a, b)| a == b)
            })
        })
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for PeerId {
    type Error = PeerIdError;

    fn try_from(text: String) -> Result<Self, PeerIdError> {
        Self::parse(&text)
    }
}

impl From<PeerId> for String {
    fn from(id: PeerId) -> Self {
        id.0
    }
}

impl std::str::FromStr for PeerId {
    type Err = PeerIdError;

    fn from_str(text: &str) -> Result<Self, PeerIdError> {
        Self::parse(text)
    }
}

#[cfg(test)]
#[path = "agent_id_tests.rs"]
mod tests;
