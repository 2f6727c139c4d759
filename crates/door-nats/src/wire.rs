//! Wire format between hubs: one JSON object per stream message and per bucket entry.
//!
//! Agents are written as `name@hub`, so that every reader understands them alike. Readers ignore unknown keys and
//! reject other versions.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_core::{Address, AgentId, Door, Hop, Kind, MessageId, Name, describe_json_error};

/// Version of the wire format.
pub(crate) const VERSION: u32 = 1;

/// Maximum number of agents in a roster; fewer if they exceed the payload limit.
///
/// A thousand agents take 150 kB, and a server accepts one megabyte by default.
pub(crate) const MAX_AGENTS: usize = 4096;

/// Maximum length of a role, status or sentence, in characters. Other hubs show these in lists.
const MAX_TEXT: usize = 200;

/// The fields that every stream message has.
#[derive(Debug, Deserialize)]
struct Head {
    v: u32,
    #[serde(rename = "type")]
    kind: EnvelopeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EnvelopeKind {
    Message,
    Receipt,
    #[serde(rename = "words")]
    ReceiptBatch,
}

/// Any message of the stream.
#[derive(Debug)]
pub(crate) enum Envelope {
    Message(Box<HubMessage<'static>>),
    Receipt(DeliveryReceipt),
    ReceiptBatch(ReceiptBatch),
}

/// Message from one hub to another hub or to all hubs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HubMessage<'a> {
    pub(crate) v: u32,
    #[serde(rename = "type")]
    pub(crate) envelope: EnvelopeKind,
    /// Hub that sent the message.
    pub(crate) hub: Cow<'a, Name>,
    pub(crate) id: MessageId,
    pub(crate) from: AgentId,
    pub(crate) to: Address,
    pub(crate) kind: Cow<'a, Kind>,
    pub(crate) body: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_reply_to: Option<MessageId>,
    pub(crate) thread: MessageId,
    pub(crate) sent_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) metadata: Cow<'a, Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) via: Vec<Hop>,
    /// Door through which the message entered the sending hub.
    pub(crate) door: Door,
    /// True if the sending hub verified that `from` wrote it.
    pub(crate) verified: bool,
    /// The signed bytes, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signed: Option<String>,
    /// Agents of other owners that already receive the message from the sending hub, as readers of the channel there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) heard: Vec<AgentId>,
    /// Channel in which the message was posted, unless the message is addressed to that whole channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) posted_in: Option<Name>,
    /// Hub of the addressed agent, for a post to one agent. `None` if the sending hub itself delivers the post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound_for: Option<Name>,
}

/// Receipt of the receiving hub, which accepted or refused the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryReceipt {
    pub(crate) v: u32,
    #[serde(rename = "type")]
    pub(crate) envelope: EnvelopeKind,
    pub(crate) hub: Name,
    pub(crate) id: MessageId,
    /// Agents of the receiving hub to which the message was addressed.
    pub(crate) agents: Vec<Name>,
    /// Reason for the refusal; `None` if the message was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

/// Batch of reader receipts: messages that agents have seen or acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiptBatch {
    pub(crate) v: u32,
    #[serde(rename = "type")]
    pub(crate) envelope: EnvelopeKind,
    pub(crate) hub: Name,
    /// Entries, parsed one by one, so that an invalid entry does not affect the others.
    pub(crate) said: Vec<Value>,
}

/// Entry of a [`ReceiptBatch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReaderReceipt {
    pub(crate) id: MessageId,
    /// Recipient on the hub that sends this receipt.
    pub(crate) agent: Name,
    pub(crate) became: ReaderState,
    /// Note of the agent's acknowledgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReaderState {
    Seen,
    Acknowledged,
}

/// Agents of a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(crate) v: u32,
    pub(crate) hub: Name,
    /// Entries, parsed one by one, so that an invalid entry does not affect the others.
    pub(crate) agents: Vec<Value>,
}

/// Entry of a [`Roster`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RosterAgent {
    pub(crate) name: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) team: Option<Name>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) channels: Vec<Name>,
}

/// Heartbeat of a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HubHeartbeat {
    pub(crate) v: u32,
    pub(crate) hub: Name,
    /// Id that is generated at every start, so that two hubs with the same name detect each other.
    pub(crate) run: String,
    /// Id that is generated once and stored.
    ///
    /// With it, a hub distinguishes its own earlier run from another hub with the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) home: Option<String>,
}

/// Presence of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentPresence {
    pub(crate) v: u32,
    pub(crate) hub: Name,
    #[serde(flatten)]
    pub(crate) agent: AgentActivity,
}

/// Activity of an agent. Silence is a duration instead of a time, because the clocks of hubs differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentActivity {
    pub(crate) name: Name,
    pub(crate) status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Milliseconds between the agent's last heartbeat and this message.
    pub(crate) silent_ms: u64,
    /// True while the agent's hub receives heartbeats from it; the hub publishes when that ends.
    #[serde(rename = "awake", default)]
    pub(crate) is_awake: bool,
}

impl AgentActivity {
    /// Returns true if both describe the same activity, regardless of when each was written.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let Self { name, status, message, is_awake, silent_ms: _ } = self;
        (name, status, message, is_awake) == (&other.name, &other.status, &other.message, &other.is_awake)
    }
}

/// Reason why a stream message cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it is not in the format of hubs: {problem}")]
    Json { problem: String },
    #[error("it has version {0}, but this switchboard reads version {VERSION}; update switchboard")]
    Version(u32),
    #[error("its field '{field}' {problem}")]
    Field { field: &'static str, problem: String },
}

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        Self::Json { problem: describe_json_error(&error) }
    }
}

impl Envelope {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head: Head = serde_json::from_slice(bytes)?;
        check_version(head.v)?;
        Ok(match head.kind {
            EnvelopeKind::Message => Self::Message(Box::new(serde_json::from_slice(bytes)?)),
            EnvelopeKind::Receipt => Self::Receipt(serde_json::from_slice(bytes)?),
            EnvelopeKind::ReceiptBatch => Self::ReceiptBatch(serde_json::from_slice(bytes)?),
        })
    }

    /// Returns the hub that the envelope names as its sender.
    pub(crate) fn hub(&self) -> &Name {
        match self {
            Self::Message(message) => &message.hub,
            Self::Receipt(receipt) => &receipt.hub,
            Self::ReceiptBatch(batch) => &batch.hub,
        }
    }
}

/// Truncates a text to [`MAX_TEXT`] characters.
pub(crate) fn truncate(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// Serializes as many entries from the start of a list as fit into one payload together.
pub(crate) fn first_fitting<T: Serialize>(
    list: impl IntoIterator<Item = T>,
    max_payload: usize,
) -> Vec<Value> {
    /// Space reserved for the fields around the list and for the overhead of JSON and NATS.
    const AROUND: usize = 4 << 10;
    let mut left = max_payload.saturating_sub(AROUND);
    let value = |entry: T| serde_json::to_value(entry).unwrap_or_default();
    let fits = |value: &Value| match left.checked_sub(value.to_string().len() + 1) {
        Some(less) => {
            left = less;
            true
        }
        None => false,
    };
    list.into_iter().take(MAX_AGENTS).map(value).take_while(fits).collect()
}

/// Rejects any version other than [`VERSION`].
pub(crate) fn check_version(version: u32) -> Result<(), Malformed> {
    if version == VERSION { Ok(()) } else { Err(Malformed::Version(version)) }
}

/// Parses the valid entries among the first [`MAX_AGENTS`] of a list.
pub(crate) fn parse_entries<T: serde::de::DeserializeOwned>(list: Vec<Value>) -> Vec<T> {
    list.into_iter().take(MAX_AGENTS).filter_map(|entry| serde_json::from_value(entry).ok()).collect()
}

/// Serializes a value of this module as JSON.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    to_bytes_of(value, 0)
}

/// Serializes a value like [`to_bytes`], with the buffer pre-allocated for a text of this length.
pub(crate) fn to_bytes_of<T: Serialize>(value: &T, text: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text + 512);
    match serde_json::to_writer(&mut bytes, value) {
        Ok(()) => bytes,
        // Serialization cannot fail, because maps have text keys and numbers are finite.
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
