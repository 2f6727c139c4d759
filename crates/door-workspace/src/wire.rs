//! JSON format of the Switchboard Protocol, sections "Message Schema" and "Delivery Receipt Schema".
//!
//! Field names are as published. Optional fields are omitted when absent, and may be `null` when read. Unknown fields
//! are retained and written back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_core::json::{PARSER_DEPTH, StrictRules, parse_strict};
use switchboard_core::{describe_field_error, describe_json_error};

/// Parser rules for message files.
///
/// `metadata` is opaque to Switchboard and may be nested as deeply as the parser allows.
const RULES: StrictRules = StrictRules { max_depth: PARSER_DEPTH, allows_nul: true };

/// A message file: `inbox/<recipient>/<id>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageFile {
    /// Message id, `msg_<timestamp>_<random>`; also the stem of the file name.
    pub id: String,
    /// One of the five actions of the protocol, or another program's action, which is passed through.
    pub action: String,
    /// Name of the sender, which is not authenticated.
    pub sender: String,
    /// The owner of the mailbox.
    pub recipient: String,
    /// Text of the message.
    pub payload: String,
    /// Protocol id of the message to which this message replies.
    #[serde(rename = "replyTo", default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Additional data from the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The team to which the message was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The persona for the recipient's role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Time of writing, in ISO 8601.
    #[serde(rename = "createdAt", default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Additional fields that the protocol does not define.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A receipt file: `outbox/<sender>/<message-id>.receipt.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiptFile {
    /// Receipt id: `receipt_<message-id>`.
    pub id: String,
    /// Protocol id of the message.
    #[serde(rename = "inReplyTo")]
    pub in_reply_to: String,
    /// Status: `delivered`, `failed`, `expired`, `seen` or `acknowledged`.
    pub status: String,
    /// Summary for a person, in one sentence.
    pub summary: String,
    /// Time at which the receipt was written, in ISO 8601.
    #[serde(rename = "processedAt")]
    pub processed_at: String,
    /// The error, if an error occurred.
    pub error: Option<String>,
}

/// Marker of an archived message that a newer message superseded: `<message>.json.superseded.meta`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupersededFile {
    /// Marker id: `superseded_<message-id>`.
    pub id: String,
    /// Protocol id of the superseded message.
    #[serde(rename = "inReplyTo")]
    pub in_reply_to: String,
    /// Always `superseded`.
    pub status: String,
    /// Protocol id of the newer message.
    #[serde(rename = "supersededBy")]
    pub superseded_by: String,
    /// Time at which the message was superseded, in ISO 8601.
    #[serde(rename = "supersededAt")]
    pub superseded_at: String,
}

/// Error while parsing a message file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The file has no content.
    #[error("the file is empty")]
    Empty,
    /// The file is not UTF-8, but for example UTF-16 or binary.
    #[error("the file is not UTF-8 text (first bad byte at {at})")]
    NotUtf8 {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The file starts with a byte order mark.
    #[error("the file begins with a byte order mark; write it without one")]
    ByteOrderMark,
    /// The file contains invalid JSON, a duplicate key, or nesting that is too deep.
    #[error("the file is not valid JSON: {problem}")]
    Json {
        /// The parser's error.
        problem: String,
    },
    /// A field is missing or has the wrong type.
    #[error("the file is not a message: {}{problem}", .field.as_ref().map(|field| format!("the field '{field}' ")).unwrap_or_default())]
    Fields {
        /// Name of the field, if known.
        field: Option<String>,
        /// The parser's error.
        problem: String,
    },
    /// A field has an invalid value.
    #[error("the field '{field}' {problem}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The rule that the value violates.
        problem: String,
    },
}

impl MessageFile {
    /// Parses a message file.
    ///
    /// A duplicate key is an error, because readers would choose different values.
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

/// Serializes a value as indented JSON with a final newline.
///
/// The types in this module cannot fail to serialize.
pub fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
