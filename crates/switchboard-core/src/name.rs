//! Names of agents, teams, channels and realms.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of the person who owns the hub. Always known, never registered.
pub const HUMAN: &str = "human";

/// Longest name in bytes: fits a file name on every file system together with a suffix of ours.
const MAX_BYTES: usize = 128;

/// Names with a meaning of their own in the workspace protocol or in our address syntax.
const RESERVED: [&str; 5] = ["all", "broadcast", "session", "user", "sidebar"];

/// A validated name. Two names that differ only in case are the same name.
///
/// A name is used as a folder name, so whatever a file system could misread (separators, dots at the
/// ends, device names) is refused here, once. Only ASCII is allowed, which also rules out look-alikes,
/// control and bidirectional characters, and two normal forms of one word.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("a name cannot be empty")]
    Empty,
    /// More than 128 bytes.
    #[error("a name has at most {MAX_BYTES} bytes; this one has {bytes}")]
    TooLong {
        /// How many bytes were given.
        bytes: usize,
    },
    /// A character outside the allowed set, shown escaped so that an invisible one can be seen.
    #[error("'{}' is not allowed in a name; use letters, digits, space, '.', '_' and '-'", .character.escape_default())]
    Character {
        /// The first offending character.
        character: char,
    },
    /// A dot or a space at one of the ends, or two dots in a row.
    #[error("the name '{name}' cannot begin or end with a dot or a space, nor hold '..'")]
    Shape {
        /// The text as given.
        name: String,
    },
    /// A name that Windows keeps for devices.
    #[error("'{name}' is a device name on Windows; choose another")]
    Device {
        /// The text as given.
        name: String,
    },
    /// A name with a meaning of its own.
    #[error("'{name}' is reserved; choose another")]
    Reserved {
        /// The text as given.
        name: String,
    },
}

impl Name {
    /// Checks `text` against the rules for names.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let name = || text.to_owned();
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(character) = text.chars().find(|c| !is_name_character(*c)) {
            return Err(NameError::Character { character });
        }
        if text.len() > MAX_BYTES {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        if text.starts_with(['.', ' ']) || text.ends_with(['.', ' ']) || text.contains("..") {
            return Err(NameError::Shape { name: name() });
        }
        if is_device_name(text) {
            return Err(NameError::Device { name: name() });
        }
        if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(text)) {
            return Err(NameError::Reserved { name: name() });
        }
        Ok(Self(name()))
    }

    /// The person.
    pub fn human() -> Self {
        Self(HUMAN.to_owned())
    }

    /// Whether this is the person.
    pub fn is_human(&self) -> bool {
        self.0.eq_ignore_ascii_case(HUMAN)
    }

    /// The name as it was first spelled.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bytes by which names are compared: lower case.
    fn lower(&self) -> impl Iterator<Item = u8> {
        self.0.bytes().map(|byte| byte.to_ascii_lowercase())
    }

    /// The spelling used to compare: lower case.
    pub fn key(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-')
}

/// `CON`, `nul.txt`, `COM1` …: Windows reads the part before the first dot, ignoring trailing spaces.
fn is_device_name(text: &str) -> bool {
    let stem = text.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    match stem.as_str() {
        "con" | "prn" | "aux" | "nul" => true,
        _ => ["com", "lpt"].iter().any(|port| {
            stem.strip_prefix(port).is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
        }),
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for byte in self.lower() {
            state.write_u8(byte);
        }
        state.write_u8(0xff);
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.lower().cmp(other.lower())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
