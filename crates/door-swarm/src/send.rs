//! Sending messages to a swarm from this hub.

use jiff::Timestamp;
use serde_json::{Map, Value};
use switchboard_core::{Address, AgentId, Door, GroupId, MessageId};
use switchboard_hub::Accepted;
use uuid::Uuid;

use crate::agent_id::BROADCAST;
use crate::error::SwarmError;
use crate::operations::resolve_member;
use crate::swarms::Swarms;
use crate::translate::{OutgoingDraft, key};
use crate::wire::{Attachment, AttachmentType, MessageType, Priority, Reference};

/// Maximum length of a text in characters, the limit of the existing command line.
const MAX_CONTENT: usize = 65_536;

/// Maximum number of references and of attachments per message.
const MAX_PARTS: usize = 50;

/// A message to a swarm or to one of its members.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    /// The swarm's local name; `None` means the only swarm.
    pub swarm: Option<String>,
    /// The recipient's id; `None` means all members.
    pub to: Option<String>,
    /// The local sender; `None` means our agent in the swarm.
    pub from: Option<AgentId>,
    /// `message` or `notification`.
    pub kind: MessageType,
    /// The text.
    pub text: String,
    /// The message that this message answers, by local id or wire id.
    pub in_reply_to: Option<String>,
    /// Thread id, if it differs from that of the answered message.
    pub thread: Option<Uuid>,
    /// The priority.
    pub priority: Priority,
    /// Expiry time.
    pub expires_at: Option<Timestamp>,
    /// Issues, commits, pages and other things that the message refers to.
    pub references: Vec<Reference>,
    /// Attachments.
    pub attachments: Vec<Attachment>,
    /// Further metadata.
    pub metadata: Map<String, Value>,
    /// Idempotency key: a retry with the same key is not sent twice.
    pub key: Option<String>,
}

impl OutgoingMessage {
    /// Builds a plain message to all members of the only swarm.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            swarm: None,
            to: None,
            from: None,
            kind: MessageType::Message,
            text: text.into(),
            in_reply_to: None,
            thread: None,
            priority: Priority::Normal,
            expires_at: None,
            references: Vec::new(),
            attachments: Vec::new(),
            metadata: Map::new(),
            key: None,
        }
    }

    fn check(&self, body: usize, now: Timestamp) -> Result<(), SwarmError> {
        let characters = self.text.chars().count();
        if self.text.is_empty() || characters > MAX_CONTENT {
            let problem = format!("must have 1 to {MAX_CONTENT} characters; it has {characters}");
            return Err(SwarmError::field("content", problem));
        }
        if self.text.contains('\0') {
            return Err(SwarmError::field("content", "must not hold NUL"));
        }
        if self.kind == MessageType::System {
            return Err(SwarmError::field(
                "type",
                "must be message or notification; system messages are sent by the door",
            ));
        }
        check_parts(&self.references, &self.attachments)?;
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(SwarmError::field("expires_at", "is in the past"));
        }
        let carried: usize = self.attachments.iter().map(|attachment| attachment.content.len()).sum();
        // The rest of the envelope takes less than 16 KiB.
        if self.text.len() + carried > body.saturating_sub(16 * 1024) {
            return Err(SwarmError::field(
                "attachments",
                format!("make the message larger than {body} bytes"),
            ));
        }
        Ok(())
    }
}

/// Checks the number and the format of references and attachments.
pub(crate) fn check_parts(references: &[Reference], attachments: &[Attachment]) -> Result<(), SwarmError> {
    if references.len() > MAX_PARTS || attachments.len() > MAX_PARTS {
        return Err(SwarmError::field("references", format!("and attachments are at most {MAX_PARTS} each")));
    }
    for reference in references {
        reference.check()?;
    }
    attachments.iter().try_for_each(check_attachment)
}

fn check_attachment(attachment: &Attachment) -> Result<(), SwarmError> {
    use base64::Engine as _;
    let is_good = match attachment.kind {
        AttachmentType::Url => {
            attachment.content.len() <= 2048
                && (attachment.content.starts_with("https://") || attachment.content.starts_with("http://"))
        }
        AttachmentType::Inline => {
            base64::engine::general_purpose::STANDARD.decode(&attachment.content).is_ok()
        }
    };
    let is_type = (1..=127).contains(&attachment.mime_type.len())
        && attachment.mime_type.contains('/')
        && attachment.mime_type.bytes().all(|b| b.is_ascii_graphic());
    if !is_type {
        return Err(SwarmError::field("attachments", "need a mime_type such as text/plain"));
    }
    if !is_good {
        return Err(SwarmError::field("attachments", "need an http address, or base64, as their type says"));
    }
    Ok(())
}

impl Swarms {
    /// Sends a message to a swarm. On return, the message is in the journal; `serve` delivers it.
    pub async fn send(&self, message: OutgoingMessage) -> Result<Accepted, SwarmError> {
        let (agent, swarm) = self.find_active_swarm(message.swarm.as_deref())?;
        let now = self.hub().now();
        message.check(self.config().limits.body, now)?;
        let own = agent.name().map(AgentId::local);
        let from = message
            .from
            .clone()
            .or(own)
            .ok_or_else(|| SwarmError::field("from", "is not a valid name here"))?;
        let to = match message.to.as_deref() {
            None | Some("all" | BROADCAST) => Address::Group(GroupId::Swarm(swarm.realm.clone())),
            Some(named) => {
                let id = resolve_member(&swarm, named)?;
                let name = swarm.members.get(&id).map(|member| member.name.clone());
                let name = name.ok_or_else(|| SwarmError::field("to", "is no member"))?;
                AgentId { name, realm: Some(swarm.realm.clone()) }.into()
            }
        };
        let in_reply_to = match message.in_reply_to.as_deref() {
            Some(id) => Some(self.resolve_message_id(id).await?),
            None => None,
        };
        let outgoing = OutgoingDraft {
            id: self.hub().next_id(),
            wire_id: Uuid::new_v4(),
            from,
            to,
            kind: message.kind,
            text: message.text.clone(),
            now,
        };
        let mut draft = outgoing
            .into_draft(swarm.swarm_id)
            .ok_or_else(|| SwarmError::field("type", "is no kind here"))?;
        draft.in_reply_to = in_reply_to;
        draft.expires_at = message.expires_at;
        draft.key = message.key;
        let mut set_field = |key: &str, value: Value| drop(draft.metadata.insert(key.to_owned(), value));
        if message.priority != Priority::Normal {
            set_field(key::PRIORITY, message.priority.as_str().into());
        }
        // Values that were parsed from JSON always serialize.
        if !message.references.is_empty() {
            set_field(key::REFERENCES, serde_json::to_value(&message.references).unwrap_or_default());
        }
        if !message.attachments.is_empty() {
            set_field(key::ATTACHMENTS, serde_json::to_value(&message.attachments).unwrap_or_default());
        }
        if !message.metadata.is_empty() {
            set_field(key::METADATA, Value::Object(message.metadata));
        }
        if let Some(thread) = message.thread {
            set_field(key::THREAD, thread.to_string().into());
        }
        Ok(self.hub().submit(draft).await?)
    }

    /// Finds a message by wire id or local id.
    pub async fn resolve_message_id(&self, text: &str) -> Result<MessageId, SwarmError> {
        if let Some((_, id)) = self
            .hub()
            .native_ids()
            .find(Some(Door::Swarm), &text.to_ascii_lowercase())
            .await?
            .into_iter()
            .next()
        {
            return Ok(id);
        }
        let unknown = || SwarmError::Hub(switchboard_hub::HubError::UnknownMessage { id: text.to_owned() });
        let id: MessageId = text.parse().map_err(|_| unknown())?;
        self.hub().journal().message(id).await?.map(|_| id).ok_or_else(unknown)
    }
}

/// Encodes bytes for an inline attachment.
pub fn encode_base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
