//! JSON of the channels protocol, sections "Message Format" and "Presence Protocol".
//!
//! Serde policy: field names as published; fields that the protocol does not require may be missing or
//! `null`; unknown fields and types are preserved.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_core::describe_json_error;

/// Content of a message file `channels/{channel}/{id}.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelMessage {
    /// Message id `msg-{YYYYMMDD}-{HHMMSS}-{agent}-{hex4}`, which is also the file name.
    pub id: String,
    /// Time of writing, ISO 8601, UTC.
    pub timestamp: String,
    /// Name of the channel; the protocol calls it a session.
    pub session_id: String,
    /// Sender, as claimed by the file and not verified.
    pub from: String,
    /// Recipient: an agent, or `all`.
    pub to: String,
    /// Message type: one of the protocol's nine, or any other, which is preserved.
    #[serde(rename = "type")]
    pub kind: String,
    /// Content of the message.
    pub content: Content,
    /// Further metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Content of a message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Content {
    /// Text of the message.
    pub text: String,
    /// Code block, if any.
    #[serde(default)]
    pub code: Option<String>,
    /// References to files.
    #[serde(default, deserialize_with = "list_or_null")]
    pub artifacts: Vec<Value>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Content of a heartbeat file `signals/presence/{agent}.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PresenceFile {
    /// Id of the agent, which is also the file name.
    pub agent_id: String,
    /// Time of writing, by the writer's clock.
    pub timestamp: String,
    /// State of the agent: `AWAKE` or `OFFLINE`.
    pub state: String,
    /// Activity of the agent: `IDLE` or `WORKING`.
    #[serde(default)]
    pub substate: Option<String>,
    /// Process id of the watcher, valid on its own host.
    #[serde(default)]
    pub watcher_pid: Option<u32>,
    /// Channel that the agent watches.
    #[serde(default)]
    pub channel: Option<String>,
    /// Switchboard extension: unique identity of the process on its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Switchboard extension: last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Time of a message file, parsed without the other fields.
#[derive(Debug, Deserialize)]
pub(crate) struct When {
    pub(crate) timestamp: String,
}

/// Reason why a file violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is not JSON, lacks a field, or has a field of the wrong type.
    #[error("the file is not a message of the channel: {problem}")]
    Json {
        /// Message of the JSON parser.
        problem: String,
    },
    /// A field has an invalid value.
    #[error("the field '{field}' {problem}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Description of the problem.
        problem: String,
    },
}

impl ChannelMessage {
    /// Parses a message file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        parse(bytes)
    }

    /// Serializes the file, indented for people.
    pub fn to_bytes(&self) -> Vec<u8> {
        pretty(self)
    }

    /// Returns the id of the message that this one answers.
    pub fn in_reply_to(&self) -> Option<&str> {
        self.metadata.as_ref()?.get("in_reply_to")?.as_str().filter(|id| !id.is_empty())
    }

    /// Returns the sort key: the time, then the id. An invalid time sorts first.
    pub fn order(&self) -> (Option<Timestamp>, &str) {
        (self.time(), &self.id)
    }

    /// Parses the time of writing.
    pub fn time(&self) -> Option<Timestamp> {
        time(&self.timestamp)
    }
}

impl PresenceFile {
    /// Parses a heartbeat file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        parse(bytes)
    }

    /// Serializes the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        pretty(self)
    }
}

/// Formats a time as the protocol writes it: milliseconds and `Z`.
pub(crate) fn iso(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Parses a time in the formats that programs write. A time without a zone is UTC, as the protocol requires.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    let in_utc = || Some(text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    text.parse().ok().or_else(in_utc)
}

fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Malformed> {
    // Strip a byte order mark, which some programs write although JSON forbids it.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Malformed::Empty);
    }
    serde_json::from_slice(bytes).map_err(|error| Malformed::Json { problem: describe_json_error(&error) })
}

/// Serializes a value as indented JSON with a final newline. The types of this module always serialize.
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
