//! The JSON of the Switchboard Protocol, sections "Message Schema" and "Delivery Receipt Schema".
//!
//! Serde policy: field names as published; optional fields are left out when absent and may be `null`
//! when read; unknown fields are kept and written back.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// A message file: `inbox/<recipient>/<id>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageFile {
    /// `msg_<timestamp>_<random>`; also the file's name.
    pub id: String,
    /// One of the five actions, or a word of somebody else's, which is passed through.
    pub action: String,
    /// Who wrote it, by their own account.
    pub sender: String,
    /// Whose mailbox it is for.
    pub recipient: String,
    /// The text.
    pub payload: String,
    /// The message it answers.
    #[serde(rename = "replyTo", default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Whatever else the sender wants to carry along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The team, where it was sent to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Text for the role that the recipient plays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// When it was written, ISO 8601.
    #[serde(rename = "createdAt", default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Fields the protocol does not name.
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
    /// `delivered`, or what happened instead or since: `failed`, `expired`, `seen`, `acknowledged`.
    pub status: String,
    /// One sentence for a person.
    pub summary: String,
    /// When, ISO 8601.
    #[serde(rename = "processedAt")]
    pub processed_at: String,
    /// What went wrong, if something did.
    pub error: Option<String>,
}

/// Beside an archived message that a newer one replaced: `<message>.json.superseded.meta`.
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

/// Why a file is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It has no content.
    #[error("the file is empty")]
    Empty,
    /// It is no UTF-8: UTF-16, or binary.
    #[error("the file is not UTF-8 text (first bad byte at {at})")]
    NotUtf8 {
        /// Where.
        at: usize,
    },
    /// It begins with a byte order mark.
    #[error("the file begins with a byte order mark; write it without one")]
    ByteOrderMark,
    /// It is no JSON, or JSON that says a thing twice or nests too deep.
    #[error("the file is not valid JSON: {problem}")]
    Json {
        /// What the parser said.
        problem: String,
    },
    /// A field is missing or of the wrong type.
    #[error("the file is not a message: {}{problem}", .field.as_ref().map(|field| format!("the field '{field}': ")).unwrap_or_default())]
    Fields {
        /// Which, where it is there.
        field: Option<String>,
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

impl MessageFile {
    /// Reads a message file. Duplicate keys, which different readers would take differently, are refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(Malformed::Empty);
        }
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return Err(Malformed::ByteOrderMark);
        }
        let text = std::str::from_utf8(bytes).map_err(|e| Malformed::NotUtf8 { at: e.valid_up_to() })?;
        let mut parser = serde_json::Deserializer::from_str(text);
        let value = Strict
            .deserialize(&mut parser)
            .and_then(|value| parser.end().map(|()| value))
            .map_err(|error| Malformed::Json { problem: error.to_string() })?;
        serde_path_to_error::deserialize(value).map_err(|error| {
            let field = Some(error.path().to_string()).filter(|path| path != ".");
            Malformed::Fields { field, problem: error.into_inner().to_string() }
        })
    }

    /// The file's content, as people read it.
    pub fn to_bytes(&self) -> Vec<u8> {
        pretty(self)
    }
}

/// Indented JSON with a newline at the end. The types of this file cannot fail to serialise.
pub fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// A [`Value`] in which no object has a key twice.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!(
                    "the key '{}' appears twice",
                    key.escape_debug()
                )));
            }
            object.insert(key, entries.next_value_seed(Strict)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
