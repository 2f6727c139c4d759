//! Names of agents, teams, channels and realms.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Name of the person who owns the hub. This name is always known and is never registered.
pub const HUMAN: &str = "human";

/// Maximum length of a name in bytes.
///
/// With Switchboard's suffixes, such a name still fits a file name on every file system.
const MAX_BYTES: usize = 128;

/// Names that are reserved by the workspace protocol or the address syntax.
const RESERVED: [&str; 5] = ["all", "broadcast", "session", "user", "sidebar"];

/// Validated name of an agent, team, channel or realm. Names that differ only in case are equal.
///
/// A name is used as a folder name. Everything that a file system could misread is therefore rejected here, once:
/// separators, dots at the ends, device names. Only ASCII is allowed, which also excludes look-alikes, control and
/// bidirectional characters, and two Unicode normal forms of one word.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Error of parsing a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name cannot be empty")]
    Empty,
    /// The text has more than 128 bytes.
    #[error("a name has at most {MAX_BYTES} bytes; this one has {bytes}")]
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// The text has a character outside the allowed set.
    ///
    /// The error message shows the character escaped, because it may be invisible.
    #[error("'{}' is not allowed in a name; use letters, digits, space, '.', '_' and '-'", .character.escape_default())]
    Character {
        /// The first offending character.
        character: char,
    },
    /// The text starts or ends with a dot or a space, or has two dots in a row.
    #[error("the name '{name}' must not begin or end with a dot or a space, or contain '..'")]
    Shape {
        /// The text as given.
        name: String,
    },
    /// The name is a device name on Windows.
    #[error("'{name}' is a device name on Windows; choose another")]
    Device {
        /// The text as given.
        name: String,
    },
    /// The name is reserved.
    #[error("'{name}' is reserved; choose another")]
    Reserved {
        /// The text as given.
        name: String,
    },
}

impl Name {
    /// Validates `text` as a name.
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

    /// Returns the name of the person.
    pub fn human() -> Self {
        Self(HUMAN.to_owned())
    }

    /// Returns true if this is the name of the person.
    pub fn is_human(&self) -> bool {
        self.0.eq_ignore_ascii_case(HUMAN)
    }

    /// Returns the name in its original spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the lower-case bytes of the name, by which names are compared.
    fn lower(&self) -> impl Iterator<Item = u8> {
        self.0.bytes().map(|byte| byte.to_ascii_lowercase())
    }

    /// Returns the lower-case spelling, used as a key for comparison and indexes.
    pub fn key(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-')
}

/// Returns true for Windows device names such as `CON`, `nul.txt` and `COM1`.
///
/// Windows reads only the part before the first dot and ignores trailing spaces.
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
