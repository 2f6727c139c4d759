//! Sends to agents and teams.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchboard_core::{
    Address, AgentId, Delivery, DeliveryState, Door, Kind, MessageId, Name, PresenceState, ResolveError,
    sanitize_inline,
};
use switchboard_hub::{Accepted, HubError};

use super::ToolContext;
use super::work::minutes_from;
use crate::error::WorkspaceError;
use crate::mcp::answer::{Answer, Outcome, ToolError};
use crate::render::{deliveries, native};
use crate::team_send::{MemberSendResult, OutgoingTeamMessage};
use crate::workspace::{OutgoingMessage, Workspace};

pub(super) const SEND_MESSAGE: &str = "Send a message to an agent or group. It is stored durably when this returns. \
     get_receipt reports delivery, reading and acknowledgement.";

pub(super) const SEND_TEAM_MESSAGE: &str = "Send one message to each member of a team, with the persona of its role. Reports \
     for each member whether it was accepted.";

/// The five actions of the protocol.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    DelegateTask,
    RequestReview,
    SubmitResult,
    StatusUpdate,
    Execute,
}

impl Action {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::DelegateTask => "delegate_task",
            Self::RequestReview => "request_review",
            Self::SubmitResult => "submit_result",
            Self::StatusUpdate => "status_update",
            Self::Execute => "execute",
        }
    }

    fn kind(self) -> Result<Kind, ToolError> {
        Kind::parse(self.as_str()).map_err(|error| ToolError::new(error.to_string()))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SendMessage {
    /// codex, team:backend, #general, alice@research, job:7/0, all, or a role. Leave out where the active workflow routes it.
    recipient: Option<String>,
    /// execute is typed into the recipient's terminal; the others are mail.
    action: Action,
    /// The text.
    payload: String,
    /// Id of the message this answers.
    reply_to: Option<String>,
    /// Extra data.
    metadata: Option<Map<String, Value>>,
    /// Your own name; optional.
    sender: Option<String>,
    /// Idempotency key: a retry with it is not sent twice.
    idempotency_key: Option<String>,
    /// After that it is archived unread.
    expires_in_minutes: Option<u32>,
    /// For a recipient that only reads files.
    allow_unregistered: Option<bool>,
}

pub(super) async fn send_message(ctx: &ToolContext<'_>, given: SendMessage) -> Outcome {
    let from = ctx.require_self(given.sender.as_deref(), "sender")?;
    let workspace = ctx.workspace;
    let kind = given.action.kind()?;
    let lifetime = minutes_from("expiresInMinutes", given.expires_in_minutes)?;
    let metadata = given.metadata.unwrap_or_default();
    let allow_unregistered = given.allow_unregistered.unwrap_or(false);
    let to = match &given.recipient {
        Some(text) if allow_unregistered => text.parse::<Address>()?,
        Some(text) => match ctx.now.recipient(text) {
            Err(error) => return Err(unknown_recipient(ctx.workspace.or_retired(error).await)),
            Ok(found) => found,
        },
        None => workspace.workflow_recipient(&from, &kind, &metadata).await?.into(),
    };
    workspace.check_execute(&kind, &to).await?;
    let in_reply_to = resolve_parent(workspace, &from, given.reply_to.as_deref()).await?;
    let mut message = OutgoingMessage::new(from.clone(), to.clone(), kind, given.payload);
    let mut persona_problem = None;
    if let Address::Agent(agent) = &to
        && agent.realm.is_none()
    {
        let persona = workspace.persona_in(ctx.now, agent, &metadata).await?;
        message.metadata = metadata;
        persona_problem = persona.problem;
        if let Some(text) = persona.text {
            message = message.with_persona(text);
        }
    } else {
        message.metadata = metadata;
    }
    let now = workspace.hub().now();
    message.in_reply_to = in_reply_to;
    message.expires_at = lifetime.and_then(|lifetime| now.checked_add(lifetime).ok());
    message.allow_unregistered = allow_unregistered;
    message.key = given.idempotency_key;
    let permit = ctx.permit.lock().take();
    let accepted = workspace.send_with_permit(message, permit).await?;
    report_accepted(workspace, &to, &accepted, persona_problem)
}

/// Reports an accepted message: it is in the journal, and its delivery is not known yet.
fn report_accepted(
    workspace: &Workspace,
    to: &Address,
    accepted: &Accepted,
    persona_problem: Option<String>,
) -> Outcome {
    let id = native(accepted.id);
    if let Some(stop) = &accepted.stopped {
        return Err(ToolError::new(format!("{id} is stored but not delivered: {stop}"))
            .next(format!("Tell the person; `switchboard resume {id}` delivers it.")));
    }
    let reached = accepted.deliveries.len();
    let whom = match accepted.deliveries.as_slice() {
        [one] => format!("{}{}", one.agent, presence_note(workspace, one)),
        _ => format!("{reached} agents of {to}"),
    };
    let how = if accepted.duplicate { "was accepted before" } else { "accepted" };
    let mut text = match accepted.deliveries.iter().find(|delivery| delivery.state == DeliveryState::Refused)
    {
        Some(refused) => {
            let why = sanitize_inline(refused.note.as_deref().unwrap_or("refused"));
            format!("{id} {how}, but {} does not get it: {why}", refused.agent)
        }
        None => format!("{id} {how} for {whom}."),
    };
    let mut data = json!({
        "id": id,
        "to": to.to_string(),
        "duplicate": accepted.duplicate,
        "deliveries": deliveries(&accepted.deliveries),
    });
    if let Some(problem) = persona_problem {
        text.push_str(" It was sent without a persona: ");
        text.push_str(&problem);
        data["personaProblem"] = problem.into();
    }
    Ok(Answer::new(text, data))
}

/// Returns the recipient's presence, as far as it is known.
///
/// Reads no file: one may be written at this moment, and the sender would wait for that.
fn presence_note(workspace: &Workspace, accepted: &Delivery) -> &'static str {
    let is_stored = accepted.route.door() == Door::Workspace && !accepted.state.is_final();
    match workspace.hub().agents().presence(&accepted.agent).state {
        PresenceState::Awake | PresenceState::Unknown => "",
        PresenceState::Stale => " (no recent heartbeat)",
        PresenceState::Offline if is_stored => " (offline: it waits in the mailbox)",
        PresenceState::Offline => " (offline)",
    }
}

async fn resolve_parent(
    workspace: &Workspace,
    me: &AgentId,
    id: Option<&str>,
) -> Result<Option<MessageId>, WorkspaceError> {
    match id {
        Some(id) => workspace.resolve_id_for(me, id).await.map(Some),
        None => Ok(None),
    }
}

/// Builds the error for an unknown recipient. A local name may belong to a program that only reads files, unless it
/// looks like a typo.
fn unknown_recipient(error: WorkspaceError) -> ToolError {
    let may_read_files = matches!(
        &error,
        WorkspaceError::Hub(HubError::Unresolved(ResolveError::UnknownAgent { agent, near, .. }))
            if agent.realm.is_none() && near.is_empty()
    );
    let problem = ToolError::from(error);
    if may_read_files { problem.or("For one that only reads files, set allowUnregistered.") } else { problem }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendTeamMessage {
    /// The team's id.
    team: String,
    /// execute is typed into each member's terminal; the others are mail.
    action: Action,
    /// The text.
    payload: String,
    /// Only members with this role.
    role_filter: Option<String>,
    /// Id of the message this answers.
    #[serde(rename = "replyTo")]
    reply_to: Option<String>,
    /// Extra data.
    metadata: Option<Map<String, Value>>,
    /// Your own name; optional.
    sender: Option<String>,
    /// Idempotency key: a retry sends no second copy.
    #[serde(rename = "idempotencyKey")]
    idempotency_key: Option<String>,
}

pub(super) async fn send_team_message(ctx: &ToolContext<'_>, given: SendTeamMessage) -> Outcome {
    let from = ctx.require_self(given.sender.as_deref(), "sender")?;
    let workspace = ctx.workspace;
    let team = given.team.strip_prefix("team:").unwrap_or(&given.team);
    let in_reply_to = resolve_parent(workspace, &from, given.reply_to.as_deref()).await?;
    let mut message = OutgoingTeamMessage::new(Name::parse(team)?, from, given.action.kind()?, given.payload);
    message.role_filter = given.role_filter;
    message.metadata = given.metadata.unwrap_or_default();
    message.in_reply_to = in_reply_to;
    message.key = given.idempotency_key;
    let sent = workspace.send_team_message(message).await?;
    let (lines, members): (Vec<String>, Vec<Value>) = sent.members.iter().map(describe_copy).unzip();
    let text = format!(
        "Accepted for {} of {} members of {}.\n{}",
        sent.sent,
        sent.members.len(),
        sent.team,
        lines.join("\n")
    );
    Ok(Answer::new(
        text,
        json!({ "team": sent.team.to_string(), "totalMembers": sent.total_members, "sentTo": sent.sent, "members": members }),
    ))
}

/// Reports one member's copy, as a line and as data.
fn describe_copy(sent: &MemberSendResult) -> (String, Value) {
    let member = sent.member.to_string();
    let mut data = json!({ "member": member, "hasPersona": sent.has_persona });
    let mut line = match (&sent.message, &sent.stopped) {
        (Ok(id), stopped) => {
            data["messageId"] = native(*id).into();
            match stopped {
                None => format!("{member}: {}", native(*id)),
                Some(stop) => {
                    data["error"] = stop.to_string().into();
                    format!("{member}: {} is stored but not delivered: {stop}", native(*id))
                }
            }
        }
        (Err(error), _) => {
            data["error"] = error.to_string().into();
            format!("{member}: not sent: {error}")
        }
    };
    if let Some(problem) = &sent.persona_problem {
        data["personaProblem"] = problem.as_str().into();
        line.push_str(" (without its persona: ");
        line.push_str(problem);
        line.push(')');
    }
    (line, data)
}
