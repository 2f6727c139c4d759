//! What hubs tell each other: JSON, one object per message of the stream and per entry of a bucket.
//!
//! Agents are written in full, `name@hub`, so that they mean the same to every reader. Keys that a reader does not
//! know are left alone; another version is not read at all.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_core::{Address, AgentId, Door, Hop, Kind, MessageId, Name};

/// The version of all of this.
pub(crate) const VERSION: u32 = 1;

/// Most agents that a hub tells of, and fewer where they would not fit into what a server takes at once: a thousand take
/// 150 kB, and a server takes a megabyte.
pub(crate) const MAX_AGENTS: usize = 4096;

/// Longest role, status or sentence that other hubs are told, in characters. They are shown in lists.
const MAX_TEXT: usize = 200;

/// What stands in every message of the stream.
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

/// A message of the stream.
#[derive(Debug)]
pub(crate) enum Envelope {
    Message(Box<HubMessage<'static>>),
    Receipt(DeliveryReceipt),
    ReceiptBatch(ReceiptBatch),
}

/// A message from one hub to another, or to all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HubMessage<'a> {
    pub(crate) v: u32,
    #[serde(rename = "type")]
    pub(crate) envelope: EnvelopeKind,
    /// The hub that wrote it.
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
    /// The protocol by which it came into the hub that wrote it.
    pub(crate) door: Door,
    /// Whether that hub knows that `from` wrote it.
    pub(crate) verified: bool,
    /// The bytes that were signed, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signed: Option<String>,
    /// Those of other owners who have it from the hub that wrote it, because they read the channel along there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) heard: Vec<AgentId>,
    /// The channel that it was posted in, where it is not written to all of that channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) posted_in: Option<Name>,
    /// Of a post to one agent: the hub that has that agent. Nothing where the hub that wrote this sees to it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound_for: Option<Name>,
}

/// What became of a message in the hub that it was written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryReceipt {
    pub(crate) v: u32,
    #[serde(rename = "type")]
    pub(crate) envelope: EnvelopeKind,
    pub(crate) hub: Name,
    pub(crate) id: MessageId,
    /// The agents there that it was for.
    pub(crate) agents: Vec<Name>,
    /// Why it was not taken; nothing where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

/// What became of messages afterwards, in the hub that they were written to: as much as there is to say at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceiptBatch {
    pub(crate) v: u32,
    #[serde(rename = "type")]
    pub(crate) envelope: EnvelopeKind,
    pub(crate) hub: Name,
    /// Each read by itself: one that cannot be read costs no other.
    pub(crate) said: Vec<Value>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReaderReceipt {
    pub(crate) id: MessageId,
    /// The agent there that it was for.
    pub(crate) agent: Name,
    pub(crate) became: ReaderState,
    /// What the agent said about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReaderState {
    Seen,
    Acknowledged,
}

/// Who lives on a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(crate) v: u32,
    pub(crate) hub: Name,
    /// Each read by itself: one that cannot be read costs no other.
    pub(crate) agents: Vec<Value>,
}

/// One of them.
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

/// A hub's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HubHeartbeat {
    pub(crate) v: u32,
    pub(crate) hub: Name,
    /// Made anew at every start, so that two hubs of one name notice each other.
    pub(crate) run: String,
    /// Made once and kept, so that a hub tells what is left of an earlier run of its own from another hub of its name.
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

/// What an agent does. A length and no time, because clocks differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentActivity {
    pub(crate) name: Name,
    pub(crate) status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// How long ago it gave its last sign of life, when this was written.
    pub(crate) silent_ms: u64,
    /// True as long as its hub hears it; the hub tells when it no longer does.
    #[serde(rename = "awake", default)]
    pub(crate) is_awake: bool,
}

impl AgentActivity {
    /// True if both say the same, whenever they were written.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let Self { name, status, message, is_awake, silent_ms: _ } = self;
        (name, status, message, is_awake) == (&other.name, &other.status, &other.message, &other.is_awake)
    }
}

/// Why bytes of the stream are nothing that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it is not what hubs write: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has version {0}, and only {VERSION} is known; update switchboard")]
    Version(u32),
    #[error("its field '{field}' {problem}")]
    Field { field: &'static str, problem: String },
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

    /// The hub that says it wrote this.
    pub(crate) fn hub(&self) -> &Name {
        match self {
            Self::Message(message) => &message.hub,
            Self::Receipt(receipt) => &receipt.hub,
            Self::ReceiptBatch(batch) => &batch.hub,
        }
    }
}

/// A text as other hubs are told it.
pub(crate) fn truncate(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// As many of a list, as values, as fit into what a server takes at once, beside the little around them.
pub(crate) fn take_fitting<T: Serialize>(
    list: impl IntoIterator<Item = T>,
    max_payload: usize,
) -> Vec<Value> {
    /// The name of the hub and the run, and what JSON and NATS put around it all.
    const AROUND: usize = 4 << 10;
    let mut left = max_payload.saturating_sub(AROUND);
    let value = |one: T| serde_json::to_value(one).unwrap_or_default();
    let fits = |value: &Value| match left.checked_sub(value.to_string().len() + 1) {
        Some(less) => {
            left = less;
            true
        }
        None => false,
    };
    list.into_iter().take(MAX_AGENTS).map(value).take_while(fits).collect()
}

/// Refuses another version.
pub(crate) fn check_version(version: u32) -> Result<(), Malformed> {
    if version == VERSION { Ok(()) } else { Err(Malformed::Version(version)) }
}

/// What can be read of a list, as far as it is looked at.
pub(crate) fn parse_entries<T: serde::de::DeserializeOwned>(list: Vec<Value>) -> Vec<T> {
    list.into_iter().take(MAX_AGENTS).filter_map(|one| serde_json::from_value(one).ok()).collect()
}

/// The bytes of a value of ours.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    to_bytes_of(value, 0)
}

/// The same for a value with a text of this length: room that is made at once is not made again and again.
pub(crate) fn to_bytes_of<T: Serialize>(value: &T, text: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text + 512);
    match serde_json::to_writer(&mut bytes, value) {
        Ok(()) => bytes,
        // Maps have text keys and numbers are finite, so there is nothing that JSON cannot hold.
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
