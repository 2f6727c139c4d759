//! §4: messages.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Reference;

/// A message, in the order in which its fields are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// The version of the protocol.
    pub protocol_version: String,
    /// Its id, a UUID.
    pub message_id: String,
    /// When it was signed.
    pub timestamp: String,
    /// Who sends it.
    pub sender: Sender,
    /// An agent's id, or `broadcast`.
    pub recipient: String,
    /// The swarm, a UUID.
    pub swarm_id: String,
    /// What kind of message it is.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// The text; JSON in a text for those of type `system`.
    pub content: String,
    /// The sender's signature, base64.
    pub signature: String,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// What groups a conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// How urgent it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// When it stops being of use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What comes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<Vec<Reference>>,
    /// Whatever else it carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// Who sends a message, and where they say they are reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// The agent.
    pub agent_id: String,
    /// Its address. Nobody has signed it, and nothing is ever sent there on its word.
    pub endpoint: String,
}

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageType {
    /// Agents talk.
    Message,
    /// The swarm changes.
    System,
    /// A light alert.
    Notification,
}

/// How urgent a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// It can wait.
    Low,
    /// The rule.
    #[default]
    Normal,
    /// It should not wait.
    High,
}

/// What comes with a message. Never fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Where it is.
    #[serde(rename = "type")]
    pub kind: AttachmentType,
    /// What it is.
    pub mime_type: String,
    /// The address, or the content in base64.
    pub content: String,
}

/// Where an attachment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachmentType {
    /// At an address.
    Url,
    /// In the message.
    Inline,
}

impl MessageType {
    /// The word for it, as it is signed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::System => "system",
            Self::Notification => "notification",
        }
    }

    /// The type of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Message, Self::System, Self::Notification].into_iter().find(|kind| kind.as_str() == word)
    }
}

impl Priority {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}
