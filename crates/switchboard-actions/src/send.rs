//! The action that sends a message or a reply.

use door_workspace::{OutgoingMessage, Persona, SendPermit, Snapshot, Workspace};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use switchboard_core::{Address, AgentId, Kind, MessageId, TaskName, suggest_similar};
use switchboard_hub::Accepted;

use crate::actor::Actor;
use crate::error::ActionError;

/// Request to send a message.
#[derive(Debug, Clone, Default)]
pub struct Send {
    /// The recipient: an address or a role. `None` if the active workflow names the recipient.
    pub to: Option<String>,
    /// The text.
    pub text: String,
    /// Kind of the message, one of five. The default is `submit_result` for a reply and `delegate_task` otherwise.
    pub kind: Option<String>,
    /// The id of the message that this one replies to.
    pub reply_to: Option<String>,
    /// Additional data.
    pub metadata: Map<String, Value>,
    /// The claim under which the message is sent, as TASK:FENCE (fencing token).
    ///
    /// Once the claim has ended, the message is refused.
    pub claim: Option<String>,
    /// How long the message waits before it expires and moves to the archive.
    pub expires_in: Option<SignedDuration>,
    /// True to replace the sender's earlier tasks for the same recipient that are still waiting.
    pub replace: bool,
    /// True to accept a recipient that is not registered and reads its mailbox as files.
    pub allow_unregistered: bool,
    /// Idempotency key: a retry with the same key does not send the message twice.
    pub key: Option<String>,
}

/// Result of sending a message that was accepted.
#[derive(Debug)]
pub struct Sent {
    /// The resolved recipient.
    pub to: Address,
    /// The journal's record of the accepted message.
    pub accepted: Accepted,
    /// Reason why the persona of the recipient's role was left out, if it was.
    pub persona_problem: Option<String>,
}

impl Send {
    /// Checks all fields that need no workspace. Returns the kind of the message.
    pub fn check(&self) -> Result<Kind, ActionError> {
        let kind = kind_of(self.kind.as_deref(), self.reply_to.is_some())?;
        check_text(&self.text, self.metadata.is_empty() && self.claim.is_none())?;
        if self.replace && kind != Kind::delegate_task() {
            return Err(ActionError::ReplacesNoTask { kind });
        }
        self.claim.as_deref().map(parse_claim).transpose()?;
        check_lifetime("expires_in", self.expires_in)?;
        if self.key.as_deref().is_some_and(|key| key.trim().is_empty()) {
            return Err(ActionError::Empty { field: "key" });
        }
        Ok(kind)
    }
}

/// Sends a message. When this returns `Ok`, the message is in the journal, on disk.
///
/// The snapshot `now` resolves names. The `permit` is released once the message is queued, so that the sender's next
/// message is journaled after this one.
pub async fn send(
    actor: Actor<'_>,
    now: &Snapshot,
    permit: Option<SendPermit>,
    request: Send,
) -> Result<Sent, ActionError> {
    let kind = request.check()?;
    let Actor { workspace, agent: from } = actor;
    let mut metadata = request.metadata;
    if let Some(claim) = &request.claim {
        metadata.insert("claim".to_owned(), parse_claim(claim)?);
    }
    let to = match &request.to {
        Some(text) if request.allow_unregistered => text.parse::<Address>()?,
        Some(text) => match now.recipient(text) {
            Ok(found) => found,
            Err(error) => return Err(workspace.or_retired(error).await.into()),
        },
        None => workspace.workflow_recipient(from, &kind, &metadata).await?.into(),
    };
    workspace.check_execute(&kind, &to).await?;
    let in_reply_to = resolve_parent(workspace, from, request.reply_to.as_deref()).await?;
    let persona = match &to {
        Address::Agent(agent) if agent.realm.is_none() => workspace.persona_in(now, agent, &metadata).await?,
        _ => Persona::default(),
    };
    let expires_at = match request.expires_in {
        Some(lifetime) => {
            Some(workspace.hub().now().checked_add(lifetime).map_err(|_| too_long("expires_in"))?)
        }
        None => None,
    };
    let mut message = OutgoingMessage {
        in_reply_to,
        expires_at,
        replace_earlier: request.replace,
        metadata,
        allow_unregistered: request.allow_unregistered,
        key: request.key,
        ..OutgoingMessage::new(from.clone(), to.clone(), kind, request.text)
    };
    if let Some(text) = persona.text {
        message = message.with_persona(text);
    }
    let accepted = workspace.send_with_permit(message, permit).await?;
    Ok(Sent { to, accepted, persona_problem: persona.problem })
}

/// Parses a kind of message. Without a kind, a reply is a result and any other message is a task.
pub fn kind_of(text: Option<&str>, is_reply: bool) -> Result<Kind, ActionError> {
    let text = text.unwrap_or(if is_reply { "submit_result" } else { "delegate_task" });
    if Kind::ACTIONS.contains(&text) {
        return Ok(Kind::parse(text)?);
    }
    let near = suggest_similar(text, Kind::ACTIONS);
    let near = Kind::ACTIONS.into_iter().find(|kind| near.first().is_some_and(|near| near == kind));
    Err(ActionError::UnknownKind { given: text.to_owned(), near })
}

/// Refuses an empty text, unless data is sent with the text.
pub(crate) fn check_text(text: &str, has_no_data: bool) -> Result<(), ActionError> {
    if text.trim().is_empty() && has_no_data { Err(ActionError::EmptyText) } else { Ok(()) }
}

/// Refuses a lifetime or lease of zero or less.
pub(crate) fn check_lifetime(
    field: &'static str,
    lifetime: Option<SignedDuration>,
) -> Result<(), ActionError> {
    match lifetime {
        Some(lifetime) if lifetime <= SignedDuration::ZERO => {
            Err(ActionError::Invalid { field, problem: "is 0 and must be longer".to_owned() })
        }
        _ => Ok(()),
    }
}

fn too_long(field: &'static str) -> ActionError {
    ActionError::Invalid { field, problem: "is longer than a timestamp can hold".to_owned() }
}

/// Parses TASK:FENCE (fencing token) into the form that the hub reads in a message.
fn parse_claim(text: &str) -> Result<Value, ActionError> {
    let parts = text.rsplit_once(':').and_then(|(task, fence)| Some((task, fence.parse::<i64>().ok()?)));
    let Some((task, fence)) = parts else { return Err(ActionError::BadClaim { given: text.to_owned() }) };
    Ok(json!({ "task": TaskName::parse(task)?.as_str(), "fence": fence }))
}

/// Resolves the id of the message that a new message replies to.
pub(crate) async fn resolve_parent(
    workspace: &Workspace,
    agent: &AgentId,
    id: Option<&str>,
) -> Result<Option<MessageId>, ActionError> {
    match id {
        Some(id) => Ok(Some(workspace.resolve_id_for(agent, id).await?)),
        None => Ok(None),
    }
}
