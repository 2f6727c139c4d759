//! The JSON of the channels protocol, sections "Message Format" and "Presence Protocol".
//!
//! Serde policy: field names as published; what the protocol does not require may be missing or `null` when
//! read; fields and types it does not name are kept and written back.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message file: `channels/{channel}/{id}.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelMessage {
    /// `msg-{YYYYMMDD}-{HHMMSS}-{agent}-{hex4}`; also the file's name.
    pub id: String,
    /// When it was written, ISO 8601, UTC.
    pub timestamp: String,
    /// The channel.
    pub session_id: String,
    /// Who wrote it, by their own account.
    pub from: String,
    /// An agent, or `all`.
    pub to: String,
    /// One of the nine types, or a word of somebody else's, which is passed through.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    pub content: Content,
    /// Whatever else it carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Fields the protocol does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Content {
    /// The text.
    pub text: String,
    /// A block of code, if any.
    #[serde(default)]
    pub code: Option<String>,
    /// References to files.
    #[serde(default, deserialize_with = "list_or_null")]
    pub artifacts: Vec<Value>,
    /// Fields the protocol does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A heartbeat file: `signals/presence/{agent}.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PresenceFile {
    /// Whose; also the file's name.
    pub agent_id: String,
    /// When it was written, by the writer's clock.
    pub timestamp: String,
    /// `AWAKE` or `OFFLINE`.
    pub state: String,
    /// `IDLE` or `WORKING`.
    #[serde(default)]
    pub substate: Option<String>,
    /// The watcher's process, which means something on its own host only.
    #[serde(default)]
    pub watcher_pid: Option<u32>,
    /// The channel it watches.
    #[serde(default)]
    pub channel: Option<String>,
    /// Of ours only: the process as other processes of its host can find it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Of ours only: what went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Fields the protocol does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The time of a message file, read without the rest.
#[derive(Debug, Deserialize)]
pub(crate) struct When {
    pub(crate) timestamp: String,
}

/// Why a file is not what the protocol says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It has no content.
    #[error("the file is empty")]
    Empty,
    /// It is no JSON, or lacks a field, or has one of the wrong type.
    #[error("the file is not valid: {problem}")]
    Json {
        /// What the parser said.
        problem: String,
    },
    /// A field's content breaks a rule.
    #[error("the field '{field}' {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl ChannelMessage {
    /// Reads a message file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        parse(bytes)
    }

    /// The file's content, as people read it.
    pub fn to_bytes(&self) -> Vec<u8> {
        pretty(self)
    }

    /// The message it answers.
    pub fn in_reply_to(&self) -> Option<&str> {
        self.metadata.as_ref()?.get("in_reply_to")?.as_str().filter(|id| !id.is_empty())
    }

    /// What readers sort by: the time it gives, then its id. A time that cannot be read sorts first.
    pub fn order(&self) -> (Option<Timestamp>, &str) {
        (self.time(), &self.id)
    }

    /// When it says that it was written, as far as that can be read.
    pub fn time(&self) -> Option<Timestamp> {
        time(&self.timestamp)
    }
}

impl PresenceFile {
    /// Reads a heartbeat file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        parse(bytes)
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        pretty(self)
    }
}

/// A time as the protocol writes it: milliseconds and `Z`.
pub(crate) fn iso(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// A time as programs write it. One without a zone is UTC, since the protocol has no other.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    let in_utc = || Some(text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    text.parse().ok().or_else(in_utc)
}

fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Malformed> {
    // Some programs begin every text with this mark, which JSON does not know.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Malformed::Empty);
    }
    serde_json::from_slice(bytes).map_err(|error| Malformed::Json { problem: error.to_string() })
}

/// Indented JSON with a newline at the end. The types of this file cannot fail to serialise.
pub(crate) fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn list_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
