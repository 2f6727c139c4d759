//! The action that sends each member of a team a message of its own.

use door_workspace::{OutgoingTeamMessage, TeamSendResult};
use serde_json::{Map, Value};
use switchboard_core::Name;

use crate::actor::Actor;
use crate::error::ActionError;
use crate::send::{check_text, kind_of, resolve_parent};

/// Request to send a message to each member of a team.
#[derive(Debug, Clone, Default)]
pub struct SendTeam {
    /// Name of the team, with or without the prefix `team:`.
    pub team: String,
    /// The text.
    pub text: String,
    /// Kind of the message, one of five. The default is the same as for [`Send`](crate::Send).
    pub kind: Option<String>,
    /// Role to which the recipients are restricted, if any.
    pub role: Option<String>,
    /// The id of the message that this one replies to.
    pub reply_to: Option<String>,
    /// Additional data.
    pub metadata: Map<String, Value>,
    /// Idempotency key: a retry with the same key does not send any member a second copy.
    pub key: Option<String>,
}

/// Sends a copy to each member, with the persona of the member's role. Fails only if no copy was accepted.
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

/// Parses a team's name, with or without the prefix `team:` that it has in addresses.
pub(crate) fn parse_team(text: &str) -> Result<Name, ActionError> {
    Ok(Name::parse(text.strip_prefix("team:").unwrap_or(text))?)
}
