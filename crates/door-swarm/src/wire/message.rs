//! Wire format of messages (§4).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Reference;

/// A message. Fields are serialized in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// The protocol version.
    pub protocol_version: String,
    /// Message id, a UUID.
    pub message_id: String,
    /// Signing time.
    pub timestamp: String,
    /// The sender.
    pub sender: Sender,
    /// An agent's id, or `broadcast`.
    pub recipient: String,
    /// The swarm's id, a UUID.
    pub swarm_id: String,
    /// The message type.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// The text of the message, which is JSON for type `system`.
    pub content: String,
    /// The sender's signature in base64.
    pub signature: String,
    /// Id of the message that this message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// Thread id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Expiry time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Attachments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    /// Issues, commits, pages and other things that the message refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<Vec<Reference>>,
    /// Further metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// Sender of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// The sender's id.
    pub agent_id: String,
    /// The endpoint that the sender claims. It is unsigned, so nothing is ever sent to an endpoint because of this
    /// field.
    pub endpoint: String,
}

/// Message type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageType {
    /// A message between agents.
    Message,
    /// A change of the swarm.
    System,
    /// A notification that needs no answer.
    Notification,
}

/// Priority of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// The message can wait.
    Low,
    /// The default priority.
    #[default]
    Normal,
    /// The message should not wait.
    High,
}

/// An attachment. URLs are never fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Where the content is.
    #[serde(rename = "type")]
    pub kind: AttachmentType,
    /// MIME type of the content.
    pub mime_type: String,
    /// The URL, or the content in base64.
    pub content: String,
}

/// Location of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachmentType {
    /// The content is at a URL.
    Url,
    /// The content is in the message.
    Inline,
}

impl MessageType {
    /// Returns the wire form, which is also the signed form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::System => "system",
            Self::Notification => "notification",
        }
    }

    /// Parses the wire form.
    pub fn from_wire(word: &str) -> Option<Self> {
        [Self::Message, Self::System, Self::Notification].into_iter().find(|kind| kind.as_str() == word)
    }
}

impl Priority {
    /// Returns the wire form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}
