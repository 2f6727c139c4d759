//! Message kinds: the purpose of a message.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Purpose of a message.
///
/// The set is open: each door defines its own kinds and relays other kinds unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kind(String);

/// Error of parsing a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a kind: 1 to 64 letters, digits, '_', '-' or '.'", .text.escape_debug())]
pub struct KindError {
    /// The text as given.
    pub text: String,
}

impl Kind {
    /// The five message kinds of the workspace protocol, which calls them actions.
    pub const ACTIONS: [&str; 5] =
        ["delegate_task", "request_review", "submit_result", "status_update", "execute"];

    /// Validates `text` as a kind.
    pub fn parse(text: &str) -> Result<Self, KindError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if (1..=64).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(KindError { text: text.to_owned() })
        }
    }

    /// Returns the kind of a task that is delegated to another agent.
    pub fn delegate_task() -> Self {
        Self("delegate_task".to_owned())
    }

    /// Returns the kind of a notification that needs no answer.
    pub fn status_update() -> Self {
        Self("status_update".to_owned())
    }

    /// Returns the kind as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Kind {
    type Err = KindError;

    fn from_str(text: &str) -> Result<Self, KindError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Kind {
    type Error = KindError;

    fn try_from(text: String) -> Result<Self, KindError> {
        Self::parse(&text)
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.0
    }
}
