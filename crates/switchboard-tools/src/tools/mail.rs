//! Tools to send messages to agents and teams.

use door_workspace::render::{deliveries, native};
use door_workspace::{MemberSendResult, Workspace, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchboard_actions::{self as actions, ActionError};
use switchboard_core::{Delivery, DeliveryState, Door, PresenceState, ResolveError, sanitize_inline};
use switchboard_hub::HubError;

use super::ToolContext;
use super::work::minutes_from;
use crate::answer::{Answer, Outcome, ToolError};

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
    /// TASK:FENCE. Refused once that claim has ended.
    claim: Option<String>,
    /// Supersede your waiting tasks for the recipient.
    replace: Option<bool>,
}

pub(super) async fn send_message(ctx: &ToolContext<'_>, input: SendMessage) -> Outcome {
    let from = ctx.require_self(input.sender.as_deref(), "sender")?;
    let expires_in = minutes_from("expiresInMinutes", input.expires_in_minutes)?;
    let permit = ctx.permit.lock().take();
    let request = actions::Send {
        to: input.recipient,
        text: input.payload,
        kind: Some(input.action.as_str().to_owned()),
        reply_to: input.reply_to,
        metadata: input.metadata.unwrap_or_default(),
        claim: input.claim,
        expires_in,
        replace: input.replace.unwrap_or(false),
        allow_unregistered: input.allow_unregistered.unwrap_or(false),
        key: input.idempotency_key,
    };
    match actions::send(ctx.actor(&from), ctx.now, permit, request).await {
        Ok(sent) => report_accepted(ctx.workspace, sent),
        Err(error) => Err(unknown_recipient(error)),
    }
}

/// Reports an accepted message.
///
/// The message is in the journal, but the outcome of its delivery is not known yet.
fn report_accepted(workspace: &Workspace, sent: actions::Sent) -> Outcome {
    let actions::Sent { to, accepted, persona_problem } = sent;
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
            let reason = sanitize_inline(refused.note.as_deref().unwrap_or("refused"));
            format!("{id} {how}, but {} does not get it: {reason}", refused.agent)
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

/// Returns a note on the recipient's presence.
///
/// The note is empty if the recipient is awake or its presence is unknown. Reads no file, because the sender would have
/// to wait if the file is being written at this moment.
fn presence_note(workspace: &Workspace, accepted: &Delivery) -> &'static str {
    let is_stored = accepted.route.door() == Door::Workspace && !accepted.state.is_final();
    match workspace.hub().agents().presence(&accepted.agent).state {
        PresenceState::Awake | PresenceState::Unknown => "",
        PresenceState::Stale => " (no recent heartbeat)",
        PresenceState::Offline if is_stored => " (offline: it waits in the mailbox)",
        PresenceState::Offline => " (offline)",
    }
}

/// Builds the error for a message that was not accepted.
///
/// An unknown local name that does not look like a typo may belong to a program that only reads files, so the error
/// then suggests `allowUnregistered`.
fn unknown_recipient(error: ActionError) -> ToolError {
    let may_read_files = matches!(
        &error,
        ActionError::Workspace(WorkspaceError::Hub(HubError::Unresolved(ResolveError::UnknownAgent { agent, near, .. })))
            if agent.realm.is_none() && near.is_empty()
    );
    let problem = ToolError::of("send_message", error);
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

pub(super) async fn send_team_message(ctx: &ToolContext<'_>, input: SendTeamMessage) -> Outcome {
    let from = ctx.require_self(input.sender.as_deref(), "sender")?;
    let request = actions::SendTeam {
        team: input.team,
        text: input.payload,
        kind: Some(input.action.as_str().to_owned()),
        role: input.role_filter,
        reply_to: input.reply_to,
        metadata: input.metadata.unwrap_or_default(),
        key: input.idempotency_key,
    };
    let sent = actions::send_team(ctx.actor(&from), request)
        .await
        .map_err(|error| ToolError::of("send_team_message", error))?;
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

/// Reports the outcome of one member's copy, as a line of text and as data.
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
