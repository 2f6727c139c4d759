//! §5: what a message of type `system` says, as JSON in its content.
//!
//! Existing implementations write the facts flat, the published schemas nest them in `member`. We write both and read
//! both.

use serde::{Deserialize, Serialize};

use super::Joined;

/// What a system message says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemContent {
    /// `system`, where it is repeated.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What happened.
    pub action: String,
    /// The swarm, where it is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// To whom it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Where a new member is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Since when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    /// The same once more: an id, or everything about a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberWord>,
    /// Who decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiated_by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who led the swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_master: Option<String>,
    /// Who leads it from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_master: Option<String>,
    /// A new key of the sender, or of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The key before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_key: Option<String>,
    /// Proof that whoever rotates a key has the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// How often the roster has changed, this change included. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What an invite that is taken back is listed under. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invite: Option<String>,
    /// When it would have ended. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Who may not come back, for a new master. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banned: Option<Vec<String>>,
}

/// A member, by its id or in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MemberWord {
    /// The id alone.
    Id(String),
    /// Everything.
    Full(Joined),
}

impl SystemContent {
    /// What happened, and nothing more yet.
    pub fn new(action: &str) -> Self {
        Self { action: action.to_owned(), ..Self::default() }
    }

    /// To whom it happened, in whichever form it is said.
    pub fn subject(&self) -> Option<&str> {
        match (&self.agent_id, &self.member) {
            (Some(id), _) | (None, Some(MemberWord::Id(id))) => Some(id),
            (None, Some(MemberWord::Full(member))) => Some(&member.agent_id),
            (None, None) => None,
        }
    }

    /// Everything about the member it happened to, where that is said.
    pub fn full_member(&self) -> Option<&Joined> {
        match &self.member {
            Some(MemberWord::Full(member)) => Some(member),
            _ => None,
        }
    }

    /// True if it says of the member that it has not proved its key.
    pub fn is_provisional(&self) -> bool {
        self.full_member().and_then(|member| member.provisional).unwrap_or(false)
    }

    /// The content as text.
    pub fn to_text(&self) -> String {
        // A struct of texts and numbers can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}
