//! Content of messages of type `system` (§5), as JSON in a string.
//!
//! Existing implementations write the fields of a member flat; the published schemas nest them in `member`. This
//! program writes and reads both forms.

use serde::{Deserialize, Serialize};

use super::RosterMember;

/// Content of a system message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemContent {
    /// Message type `system`, if it is repeated in the content.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the event.
    pub action: String,
    /// The swarm's id, if it is repeated in the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// Subject: the agent that the event is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Endpoint of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Time when the subject joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    /// The subject in nested form: an id, or a full entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberField>,
    /// The agent that decided on the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiated_by: Option<String>,
    /// The reason for the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The previous master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_master: Option<String>,
    /// The new master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_master: Option<String>,
    /// New public key of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Previous public key of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_key: Option<String>,
    /// Proof that the subject possesses the new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// Roster version that includes this change. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Digest of a revoked invite. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invite: Option<String>,
    /// Expiry time of the revoked invite. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Banned agents, for a new master. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banned: Option<Vec<String>>,
}

/// A member, as an id or as a full entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MemberField {
    /// The id only.
    Id(String),
    /// The full entry.
    Full(RosterMember),
}

impl SystemContent {
    /// Builds the content of an event with no further fields.
    pub fn new(action: &str) -> Self {
        Self { action: action.to_owned(), ..Self::default() }
    }

    /// Returns the subject, from the flat or the nested form.
    pub fn subject(&self) -> Option<&str> {
        match (&self.agent_id, &self.member) {
            (Some(id), _) | (None, Some(MemberField::Id(id))) => Some(id),
            (None, Some(MemberField::Full(member))) => Some(&member.agent_id),
            (None, None) => None,
        }
    }

    /// Returns the full entry of the subject, if there is one.
    pub fn full_member(&self) -> Option<&RosterMember> {
        match &self.member {
            Some(MemberField::Full(member)) => Some(member),
            _ => None,
        }
    }

    /// Returns true if the entry says that the subject has not proved its key.
    pub fn is_provisional(&self) -> bool {
        self.full_member().and_then(|member| member.provisional).unwrap_or(false)
    }

    /// Serializes the content.
    pub fn to_text(&self) -> String {
        // A struct of strings and numbers always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }
}
