//! The JSON of the Switchboard Protocol, sections "Message Schema" and "Delivery Receipt Schema".
//!
//! Serde policy: field names as published; optional fields are omitted when absent and may be `null` when read; unknown
//! fields are retained and written back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_core::json::{PARSER_DEPTH, StrictRules, parse_strict};
use switchboard_core::{describe_field_error, describe_json_error};

/// Rules for message files: `metadata` is opaque to us and may be as deep as the parser allows.
const RULES: StrictRules = StrictRules { max_depth: PARSER_DEPTH, allows_nul: true };

/// A message file: `inbox/<recipient>/<id>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageFile {
    /// `msg_<timestamp>_<random>`; also the file's name.
    pub id: String,
    /// One of the five actions, or another program's action, which is passed through.
    pub action: String,
    /// The sender, unauthenticated.
    pub sender: String,
    /// The owner of the mailbox.
    pub recipient: String,
    /// The text.
    pub payload: String,
    /// The message that this one replies to.
    #[serde(rename = "replyTo", default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Additional data of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The team that it was sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The persona for the recipient's role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// When it was written, ISO 8601.
    #[serde(rename = "createdAt", default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Fields that the protocol does not define.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A receipt file: `outbox/<sender>/<message-id>.receipt.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiptFile {
    /// `receipt_<message-id>`.
    pub id: String,
    /// The message.
    #[serde(rename = "inReplyTo")]
    pub in_reply_to: String,
    /// `delivered`, `failed`, `expired`, `seen` or `acknowledged`.
    pub status: String,
    /// One sentence for a person.
    pub summary: String,
    /// When, ISO 8601.
    #[serde(rename = "processedAt")]
    pub processed_at: String,
    /// The error, if there was one.
    pub error: Option<String>,
}

/// Marker of an archived message that a newer one superseded: `<message>.json.superseded.meta`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupersededFile {
    /// `superseded_<message-id>`.
    pub id: String,
    /// The message.
    #[serde(rename = "inReplyTo")]
    pub in_reply_to: String,
    /// Always `superseded`.
    pub status: String,
    /// The newer message.
    #[serde(rename = "supersededBy")]
    pub superseded_by: String,
    /// When, ISO 8601.
    #[serde(rename = "supersededAt")]
    pub superseded_at: String,
}

/// Error of parsing a message file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The file has no content.
    #[error("the file is empty")]
    Empty,
    /// The file is not UTF-8: UTF-16, or binary.
    #[error("the file is not UTF-8 text (first bad byte at {at})")]
    NotUtf8 {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The file starts with a byte order mark.
    #[error("the file begins with a byte order mark; write it without one")]
    ByteOrderMark,
    /// Invalid JSON, a duplicate key, or too deep nesting.
    #[error("the file is not valid JSON: {problem}")]
    Json {
        /// The parser's error.
        problem: String,
    },
    /// A field is missing or has the wrong type.
    #[error("the file is not a message: {}{problem}", .field.as_ref().map(|field| format!("the field '{field}' ")).unwrap_or_default())]
    Fields {
        /// The field, if it exists.
        field: Option<String>,
        /// The parser's error.
        problem: String,
    },
    /// A field has an invalid value.
    #[error("the field '{field}' {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// The rule that it breaks.
        problem: String,
    },
}

impl MessageFile {
    /// Parses a message file. Duplicate keys are refused, because readers would choose different values.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(Malformed::Empty);
        }
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return Err(Malformed::ByteOrderMark);
        }
        let text = std::str::from_utf8(bytes).map_err(|e| Malformed::NotUtf8 { at: e.valid_up_to() })?;
        let value = parse_strict(text.as_bytes(), RULES)
            .map_err(|error| Malformed::Json { problem: describe_json_error(&error) })?;
        serde_path_to_error::deserialize(value).map_err(|error| {
            let field = Some(error.path().to_string()).filter(|path| path != ".");
            let problem = match &field {
                Some(_) => describe_field_error(error.inner()),
                None => describe_json_error(error.inner()),
            };
            Malformed::Fields { field, problem }
        })
    }

    /// Serializes the file as indented JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        pretty(self)
    }
}

/// Serializes indented JSON with a final newline. The types of this file cannot fail to serialize.
pub fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
