//! §5.3 and §6: joining, and what the other endpoints answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::state::SwarmSettings;

/// `POST /swarm/join`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// `system`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `join_request`.
    pub action: String,
    /// The token of the invite.
    pub invite_token: String,
    /// Who wants to join.
    pub sender: JoinSender,
    /// The version of the protocol, in requests that prove who they are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// The id under which the request was signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// When it was signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Proof that the sender has the key: its signature as of a system message to the master whose content is the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Whether the sender had left the swarm. An extension: the master may not have heard of it though others have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin: Option<bool>,
    /// Carries the signature over the whole request, as in a message. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Who wants to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSender {
    /// The agent.
    pub agent_id: String,
    /// Where it is reached.
    pub endpoint: String,
    /// Its key.
    pub public_key: String,
}

/// A member, as the answer to a join names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The agent.
    pub agent_id: String,
    /// Where it is reached.
    pub endpoint: String,
    /// Its key.
    pub public_key: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    /// True for a member that has not proved its key. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional: Option<bool>,
}

/// The answer to a join that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAccepted {
    /// `accepted`.
    pub status: String,
    /// The swarm.
    pub swarm_id: String,
    /// Everybody in it, the master and the new member included.
    pub members: Vec<Joined>,
    /// What it is called. Existing clients need it, though the document does not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_name: Option<String>,
    /// The same once more, as state files call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who leads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Its rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SwarmSettings>,
    /// When the new member joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    /// How often the roster has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// The answer to a join that the master has to approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPending {
    /// `pending`.
    pub status: String,
    /// The swarm.
    pub swarm_id: String,
    /// What happens next.
    pub message: String,
}

/// The answer to a message that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// `queued`, or `accepted` for the master's role.
    pub status: String,
    /// The message.
    pub message_id: String,
}

/// `GET /swarm/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The agent.
    pub agent_id: String,
    /// Where it is reached.
    pub endpoint: String,
    /// Its key.
    pub public_key: String,
    /// The version of the protocol it speaks.
    pub protocol_version: String,
    /// What it understands.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// What else it says of itself.
    #[serde(default)]
    pub metadata: Option<Map<String, Value>>,
}

/// `GET /swarm/health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `healthy`.
    pub status: String,
    /// The agent.
    pub agent_id: String,
    /// The version of the protocol it speaks.
    pub protocol_version: String,
    /// When it said so.
    pub timestamp: String,
    /// A sentence more.
    pub message: Option<String>,
}

/// What every refusal looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Facts.
    #[serde(default)]
    pub details: Option<Value>,
}

/// The whole roster, or a part of it, as a master sends it to a member that has missed something. An extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// `roster`.
    pub action: String,
    /// How often it has changed.
    pub epoch: u64,
    /// Who leads the swarm.
    pub master: String,
    /// What it is called.
    pub name: String,
    /// Everybody in it; of a part, those whose ids it is about.
    pub members: Vec<Joined>,
    /// Its rules.
    pub settings: SwarmSettings,
    /// The first id that a part is about; without it, it is about all before `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The first id that it is no longer about; without it, it is the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}
