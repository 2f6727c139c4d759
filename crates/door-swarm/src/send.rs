//! Writing to a swarm from here.

use jiff::Timestamp;
use serde_json::{Map, Value};
use switchboard_core::{Address, AgentId, Door, GroupId, MessageId};
use switchboard_hub::Accepted;
use uuid::Uuid;

use crate::agent_id::BROADCAST;
use crate::error::SwarmError;
use crate::operations::member_of;
use crate::swarms::Swarms;
use crate::translate::{Written, key};
use crate::wire::{Attachment, AttachmentType, MessageType, Priority, Reference};

/// Longest text, as the existing command line has it.
const MOST_CONTENT: usize = 65_536;

/// Most references and attachments of one message.
const MOST_PARTS: usize = 50;

/// A message to a swarm or to somebody in it.
#[derive(Debug, Clone)]
pub struct Letter {
    /// What the swarm is called here; the only one where nothing is said.
    pub swarm: Option<String>,
    /// An agent's id; everybody where nobody is named.
    pub to: Option<String>,
    /// Who of us writes; our agent in the swarm where nobody is named.
    pub from: Option<AgentId>,
    /// A message or a notification.
    pub kind: MessageType,
    /// The text.
    pub text: String,
    /// The message it answers, by its id here or in the swarm.
    pub in_reply_to: Option<String>,
    /// What groups a conversation, where it is not what it answers.
    pub thread: Option<Uuid>,
    /// How urgent it is.
    pub priority: Priority,
    /// When it stops being of use.
    pub expires_at: Option<Timestamp>,
    /// What it is about.
    pub references: Vec<Reference>,
    /// What comes with it.
    pub attachments: Vec<Attachment>,
    /// Whatever else it carries.
    pub metadata: Map<String, Value>,
    /// The sender's own word for it, under which it may be sent again without being sent twice.
    pub key: Option<String>,
}

impl Letter {
    /// A plain message to everybody in the only swarm.
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
        if self.text.is_empty() || characters > MOST_CONTENT {
            let problem = format!("must have 1 to {MOST_CONTENT} characters; it has {characters}");
            return Err(SwarmError::field("content", problem));
        }
        if self.text.contains('\0') {
            return Err(SwarmError::field("content", "must not hold NUL"));
        }
        if self.kind == MessageType::System {
            return Err(SwarmError::field(
                "type",
                "must be message or notification; the rest is for the swarm itself",
            ));
        }
        check_parts(&self.references, &self.attachments)?;
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(SwarmError::field("expires_at", "is over already"));
        }
        let carried: usize = self.attachments.iter().map(|attachment| attachment.content.len()).sum();
        // What the envelope adds to them is less than 16 KiB.
        if self.text.len() + carried > body.saturating_sub(16 * 1024) {
            return Err(SwarmError::field(
                "attachments",
                format!("make the message larger than {body} bytes"),
            ));
        }
        Ok(())
    }
}

/// Whether what a message is about, and what comes with it, is of a kind and number that leads somewhere.
pub(crate) fn check_parts(references: &[Reference], attachments: &[Attachment]) -> Result<(), SwarmError> {
    if references.len() > MOST_PARTS || attachments.len() > MOST_PARTS {
        return Err(SwarmError::field(
            "references",
            format!("and attachments are at most {MOST_PARTS} each"),
        ));
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
    /// Writes to a swarm. The message is in the journal when this returns; `serve` sends it.
    pub async fn send(&self, letter: Letter) -> Result<Accepted, SwarmError> {
        let (agent, swarm) = self.find_active(letter.swarm.as_deref())?;
        let now = self.hub().now();
        letter.check(self.config().limits.body, now)?;
        let own = agent.name().map(AgentId::local);
        let from = letter.from.clone().or(own).ok_or_else(|| SwarmError::field("from", "is no name here"))?;
        let to = match letter.to.as_deref() {
            None | Some("all" | BROADCAST) => Address::Group(GroupId::Swarm(swarm.realm.clone())),
            Some(named) => {
                let id = member_of(&swarm, named)?;
                let name = swarm.members.get(&id).map(|member| member.name.clone());
                let name = name.ok_or_else(|| SwarmError::field("to", "is no member"))?;
                AgentId { name, realm: Some(swarm.realm.clone()) }.into()
            }
        };
        let in_reply_to = match letter.in_reply_to.as_deref() {
            Some(id) => Some(self.message_id(id).await?),
            None => None,
        };
        let written = Written {
            id: self.hub().next_id(),
            wire_id: Uuid::new_v4(),
            from,
            to,
            kind: letter.kind,
            text: letter.text.clone(),
            now,
        };
        let mut draft =
            written.into_draft(swarm.swarm_id).ok_or_else(|| SwarmError::field("type", "is no kind here"))?;
        draft.in_reply_to = in_reply_to;
        draft.expires_at = letter.expires_at;
        draft.key = letter.key;
        let mut keep = |key: &str, value: Value| drop(draft.metadata.insert(key.to_owned(), value));
        if letter.priority != Priority::Normal {
            keep(key::PRIORITY, letter.priority.as_str().into());
        }
        // What is checked above can be written as JSON.
        if !letter.references.is_empty() {
            keep(key::REFERENCES, serde_json::to_value(&letter.references).unwrap_or_default());
        }
        if !letter.attachments.is_empty() {
            keep(key::ATTACHMENTS, serde_json::to_value(&letter.attachments).unwrap_or_default());
        }
        if !letter.metadata.is_empty() {
            keep(key::METADATA, Value::Object(letter.metadata));
        }
        if let Some(thread) = letter.thread {
            keep(key::THREAD, thread.to_string().into());
        }
        Ok(self.hub().submit(draft).await?)
    }

    /// The message of this id, in whichever spelling.
    pub async fn message_id(&self, text: &str) -> Result<MessageId, SwarmError> {
        if let Some((_, id)) =
            self.hub().find_by_native(Some(Door::Swarm), &text.to_ascii_lowercase()).await?.into_iter().next()
        {
            return Ok(id);
        }
        let unknown = || SwarmError::Hub(switchboard_hub::HubError::UnknownMessage { id: text.to_owned() });
        let id: MessageId = text.parse().map_err(|_| unknown())?;
        self.hub().message(id).await?.map(|_| id).ok_or_else(unknown)
    }
}

/// Bytes as an attachment within a message has them.
pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
