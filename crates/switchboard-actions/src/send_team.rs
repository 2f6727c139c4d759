//! Sends each member of a team its own message.

use door_workspace::{OutgoingTeamMessage, TeamSendResult};
use serde_json::{Map, Value};
use switchboard_core::Name;

use crate::actor::Actor;
use crate::error::ActionError;
use crate::send::{check_text, kind_of, resolve_parent};

/// A message for each member of a team.
#[derive(Debug, Clone, Default)]
pub struct SendTeam {
    /// The team, with or without `team:`.
    pub team: String,
    /// The text.
    pub text: String,
    /// One of the five kinds; by default as for [`Send`](crate::Send).
    pub kind: Option<String>,
    /// Restricts the message to members with this role.
    pub role: Option<String>,
    /// The id of the message that this one replies to.
    pub reply_to: Option<String>,
    /// Additional data.
    pub metadata: Map<String, Value>,
    /// Idempotency key: a retry with the same key sends no member a second copy.
    pub key: Option<String>,
}

/// Sends a copy to each member, with the persona of its role. Refused only if no copy was accepted.
pub async fn send_team(actor: Actor<'_>, request: SendTeam) -> Result<TeamSendResult, ActionError> {
    let kind = kind_of(request.kind.as_deref(), request.reply_to.is_some())?;
    check_text(&request.text, request.metadata.is_empty())?;
    let team = parse_team(&request.team)?;
    let Actor { workspace, agent: from } = actor;
    let in_reply_to = resolve_parent(workspace, from, request.reply_to.as_deref()).await?;
    let message = OutgoingTeamMessage {
        role_filter: request.role,
        in_reply_to,
        metadata: request.metadata,
        key: request.key,
        ..OutgoingTeamMessage::new(team, from.clone(), kind, request.text)
    };
    Ok(workspace.send_team_message(message).await?)
}

/// Parses a team's name, with or without the prefix that it has in addresses.
pub(crate) fn parse_team(text: &str) -> Result<Name, ActionError> {
    Ok(Name::parse(text.strip_prefix("team:").unwrap_or(text))?)
}
