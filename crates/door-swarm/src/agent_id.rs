//! What agents are called in a swarm.

use std::fmt;

use serde::{Deserialize, Serialize};
use switchboard_core::Name;

/// The words of the field `type`. They stand between recipient and content in what is signed.
const TYPE_WORDS: [&str; 3] = ["message", "system", "notification"];

/// The recipient that stands for everybody.
pub(crate) const BROADCAST: &str = "broadcast";

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
    /// Checks a text that somebody else wrote: whether it can be an id at all.
    pub fn parse(text: &str) -> Result<Self, PeerIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(PeerIdError::Shape { text: text.to_owned() })
        }
    }

    /// Checks an id that somebody wants to take: it must also be a name, and not run into what follows it in what is
    /// signed.
    pub fn parse_new(text: &str) -> Result<Self, PeerIdError> {
        let id = Self::parse(text)?;
        let begins = text.get(..BROADCAST.len()).is_some_and(|start| start.eq_ignore_ascii_case(BROADCAST));
        if begins {
            return Err(PeerIdError::Broadcast { text: text.to_owned() });
        }
        match Name::parse(text) {
            Ok(_) => Ok(id),
            Err(reason) => Err(PeerIdError::NoName { text: text.to_owned(), reason }),
        }
    }

    /// Checks an id that somebody has, on the word of whoever leads: not one that a message to everybody could be taken for.
    pub fn parse_member(text: &str) -> Result<Self, PeerIdError> {
        let id = Self::parse(text)?;
        if id.clashes_with(&Self(BROADCAST.to_owned())) {
            return Err(PeerIdError::Broadcast { text: text.to_owned() });
        }
        Ok(id)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name that goes with it, where it is one.
    pub fn name(&self) -> Option<Name> {
        Name::parse(&self.0).ok()
    }

    /// Whether a message to one of the two could be read as a message to the other.
    ///
    /// What is signed is recipient, type and content without anything between them: `bob` + `message` + `system…` is
    /// also `bobmessage` + `system` + `…`. Two ids that differ in case alone are one name here.
    pub fn clashes_with(&self, other: &Self) -> bool {
        let runs_into = |longer: &str, shorter: &str| {
            longer
                .strip_prefix(shorter)
                .is_some_and(|rest| TYPE_WORDS.iter().any(|word| rest.starts_with(word)))
        };
        self.0.eq_ignore_ascii_case(&other.0) || runs_into(&self.0, &other.0) || runs_into(&other.0, &self.0)
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
