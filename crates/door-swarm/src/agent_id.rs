//! Agent ids of the protocol.

use std::fmt;

use serde::{Deserialize, Serialize};
use switchboard_core::Name;

/// Values of the field `type`, which follows the recipient and precedes the content in the signed bytes.
const TYPE_NAMES: [&str; 3] = ["message", "system", "notification"];

/// The recipient of a broadcast.
pub(crate) const BROADCAST: &str = "broadcast";

/// Ids that no member may have.
///
/// Readers would take them for a person, for this program or for everyone.
const RESERVED: [&str; 7] = ["system", "switchboard", "human", "all", "me", "root", "admin"];

/// Maximum length of an id in bytes, equal to the limit of a local name.
const MAX_BYTES: usize = 128;

/// An agent's id in a swarm: 1 to 128 letters, digits, `_`, `.` and `-`.
///
/// Ids are case-sensitive, unlike local names, because other implementations compare them that way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerId(String);

/// Reason why a text is not a valid agent id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerIdError {
    /// The text is empty, is too long or has invalid characters.
    #[error("agent_id '{}' is refused: use 1 to {MAX_BYTES} letters, digits, '_', '.' or '-'", .text.chars().take(40).collect::<String>().escape_debug())]
    Shape {
        /// The text as received.
        text: String,
    },
    /// The id begins with `broadcast`.
    #[error(
        "agent_id '{text}' is refused: it begins with 'broadcast', which stands for everybody; choose another"
    )]
    Broadcast {
        /// The text as received.
        text: String,
    },
    /// The id is reserved.
    #[error("agent_id '{text}' is refused: it is a reserved word; choose another")]
    Reserved {
        /// The text as received.
        text: String,
    },
    /// A command line would read the id as an option.
    #[error("agent_id '{text}' is refused: it begins with '-'; choose another")]
    Dash {
        /// The text as received.
        text: String,
    },
    /// The id is not a valid local name.
    #[error("agent_id '{text}' is refused: {reason}")]
    NoName {
        /// The text as received.
        text: String,
        /// The naming rule that the id breaks.
        reason: switchboard_core::NameError,
    },
}

impl PeerId {
    /// Parses an id that another program wrote. Checks characters and length only.
    pub fn parse(text: &str) -> Result<Self, PeerIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(PeerIdError::Shape { text: text.to_owned() })
        }
    }

    /// Parses an id that an agent wants to use: valid for a member, and also a valid local name.
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

    /// Checks that a member may have this id. Joins, rosters, state files and `init` all use this rule.
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

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the local name of this id, if it is a valid name.
    pub fn name(&self) -> Option<Name> {
        Name::parse(&self.0).ok()
    }

    /// Returns true if one swarm cannot hold both ids.
    ///
    /// Two ids conflict if their signatures are ambiguous, or if both map to one local name.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0) || self.is_ambiguous_with(other)
    }

    /// Returns true if a signature for one of two different ids can be read as one for the other.
    ///
    /// The signed bytes are recipient, type and content without separators (§4.4): `bob` + `message` + `system…` equals
    /// `bobmessage` + `system` + `…`, and `bob` + `system` + `essage…` equals `bobsyste` + `message` + `…`. Two
    /// different ids are ambiguous if and only if one id plus some type name is a prefix of the other id plus some type
    /// name.
    pub(crate) fn is_ambiguous_with(&self, other: &Self) -> bool {
        let (short, long) = if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        let Some(rest) = long.0.strip_prefix(&short.0).filter(|rest| !rest.is_empty()) else { return false };
        TYPE_NAMES.iter().any(|first| {
            TYPE_NAMES.iter().any(|second| {
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
