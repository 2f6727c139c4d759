//! Join requests, and the answers of the endpoints (§5.3, §6).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::state::SwarmSettings;

/// Body of `POST /swarm/join`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Message type, always `system`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Action, always `join_request`.
    pub action: String,
    /// The token of the invite.
    pub invite_token: String,
    /// The agent that wants to join.
    pub sender: JoinSender,
    /// The protocol version, in signed requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Message id of a signed request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Signing time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Proof of possession: the signature of a system message to the master with the token as its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// True if the sender had left the swarm, which the master may not know yet. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin: Option<bool>,
    /// Metadata with the signature over the whole request, as in a message. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// The agent that wants to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSender {
    /// The agent's id.
    pub agent_id: String,
    /// The agent's endpoint.
    pub endpoint: String,
    /// The agent's public key.
    pub public_key: String,
}

/// A roster entry, as in the answer to a join request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterMember {
    /// The member's id.
    pub agent_id: String,
    /// The member's endpoint.
    pub endpoint: String,
    /// The member's public key.
    pub public_key: String,
    /// Time when the member joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    /// True if the member has not proved its key. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional: Option<bool>,
}

/// The answer to an accepted join request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAccepted {
    /// Status, always `accepted`.
    pub status: String,
    /// The swarm's id.
    pub swarm_id: String,
    /// All members, including the master and the new member.
    pub members: Vec<RosterMember>,
    /// Display name of the swarm. The specification does not contain this field, but existing clients need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_name: Option<String>,
    /// Display name of the swarm again, under the key that state files use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Rules of the swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SwarmSettings>,
    /// Time when the new member joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    /// Roster version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// The answer to a join request that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPending {
    /// Status, always `pending`.
    pub status: String,
    /// The swarm's id.
    pub swarm_id: String,
    /// Explanation of the next step, for a person.
    pub message: String,
}

/// The answer to an accepted message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// Status: `queued`, or `accepted` for a transfer of the master role.
    pub status: String,
    /// The message id.
    pub message_id: String,
}

/// Answer of `GET /swarm/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The agent's id.
    pub agent_id: String,
    /// The agent's endpoint.
    pub endpoint: String,
    /// The agent's public key.
    pub public_key: String,
    /// The agent's protocol version.
    pub protocol_version: String,
    /// Supported features.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Further information about the agent.
    #[serde(default)]
    pub metadata: Option<Map<String, Value>>,
}

/// Answer of `GET /swarm/health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Status, always `healthy`.
    pub status: String,
    /// The agent's id.
    pub agent_id: String,
    /// The agent's protocol version.
    pub protocol_version: String,
    /// Time of the answer.
    pub timestamp: String,
    /// A note for people.
    pub message: Option<String>,
}

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// Code, message and details of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// Machine-readable code.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// Machine-readable details.
    #[serde(default)]
    pub details: Option<Value>,
}

/// A full roster, or a part of one, for a member that has missed updates. This message is an extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Action, always `roster`.
    pub action: String,
    /// Roster version.
    pub epoch: u64,
    /// The master.
    pub master: String,
    /// Display name of the swarm.
    pub name: String,
    /// All members, or those in the range of the part.
    pub members: Vec<RosterMember>,
    /// Rules of the swarm.
    pub settings: SwarmSettings,
    /// First id of the range. If absent, the range starts with the first id of the roster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// First id after the range. If absent, this is the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}
