//! Messages of the wire as messages of the core, and back. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use switchboard_core::{Address, AgentId, Door, GroupId, Kind, Message, MessageId, NativeId, Route};
use switchboard_hub::Draft;
use uuid::Uuid;

use crate::agent_id::{BROADCAST, PeerId};
use crate::keys::SecretKey;
use crate::ledger::{Identity, Member, Swarm};
use crate::signing::{ENVELOPE_SIGNATURE, Payload, sign_envelope};
use crate::stamp;
use crate::wire::{Envelope, MessageType, PROTOCOL_VERSION, Priority, Sender};

/// Keys under which fields that the core has no word for travel in the metadata.
pub(crate) mod key {
    /// The type on the wire, in messages that came in.
    pub(crate) const TYPE: &str = "swarm.type";
    /// The sender's id on the wire.
    pub(crate) const SENDER: &str = "swarm.sender";
    /// Whom it was sent to on the wire: an id, or `broadcast`.
    pub(crate) const RECIPIENT: &str = "swarm.recipient";
    /// Fields that the sender has signed.
    pub(crate) const SIGNED: &str = "swarm.signed";
    /// Fields that nobody has signed: to be shown with that in mind, and to decide nothing.
    pub(crate) const UNSIGNED: &str = "swarm.unsigned";
    /// Fields of a message that is to go out.
    pub(crate) const PRIORITY: &str = "swarm.priority";
    pub(crate) const REFERENCES: &str = "swarm.references";
    pub(crate) const ATTACHMENTS: &str = "swarm.attachments";
    pub(crate) const METADATA: &str = "swarm.metadata";
    pub(crate) const THREAD: &str = "swarm.thread";
}

/// Keys in the metadata of an envelope that we write and read ourselves.
mod extra {
    /// For whom of its hub an agent sends.
    pub(super) const ON_BEHALF_OF: &str = "on_behalf_of";
    /// What a message is for, in the words of the sending hub.
    pub(super) const KIND: &str = "kind";
    /// How often the sender's roster has changed.
    pub(super) const EPOCH: &str = "roster_epoch";
    /// What a post of a channel is called by the hubs that the channel spans.
    pub(super) const POST: &str = "post";
}

/// A message is signed with the time it was written, as long as that is not much longer ago than this.
const FRESH: SignedDuration = SignedDuration::from_mins(1);

/// What came in and passed every check.
pub(crate) struct Incoming<'a> {
    pub(crate) envelope: &'a Envelope,
    pub(crate) swarm: &'a Swarm,
    pub(crate) identity: &'a Identity,
    pub(crate) sender: &'a PeerId,
    pub(crate) member: &'a Member,
    /// Whether the whole envelope is signed.
    pub(crate) is_whole: bool,
    /// The message of ours that it answers, and who of us wrote that.
    pub(crate) parent: Option<(MessageId, Option<AgentId>)>,
    pub(crate) timestamp: Timestamp,
    pub(crate) id: MessageId,
}

/// The scope of the ids of a sender's messages to one of our agents. Each sender has its own, so that nobody can take
/// another's id.
pub(crate) fn scope(swarm: Uuid, sender: &PeerId, me: &PeerId) -> String {
    format!("{swarm} {sender} {me}")
}

/// How often a sender says that its roster has changed.
pub(crate) fn told_epoch(envelope: &Envelope) -> Option<u64> {
    envelope.metadata.as_ref()?.get(extra::EPOCH)?.as_u64()
}

/// The post of a channel that a message is, in the words of the sending hub.
pub(crate) fn told_post(envelope: &Envelope) -> Option<MessageId> {
    envelope.metadata.as_ref()?.get(extra::POST)?.as_str()?.parse().ok()
}

impl Incoming<'_> {
    /// The message as the hub takes it in.
    pub(crate) fn to_draft(&self) -> Option<Draft> {
        let envelope = self.envelope;
        let me = AgentId::local(self.identity.name()?);
        let (mut to, mut in_reply_to) = (me, None);
        if let Some((parent, writer)) = &self.parent {
            in_reply_to = Some(*parent);
            if envelope.kind != MessageType::System && envelope.recipient != BROADCAST {
                to = writer.clone().unwrap_or(to);
            }
        }
        let expires_at = envelope.expires_at.as_deref().filter(|_| self.is_whole).and_then(stamp::parse);
        let agent = AgentId { name: self.member.name.clone(), realm: Some(self.swarm.realm.clone()) };
        Some(Draft {
            id: self.id,
            from: agent.clone(),
            to: to.into(),
            kind: self.kind()?,
            body: envelope.content.clone(),
            in_reply_to,
            sent_at: self.timestamp,
            expires_at,
            metadata: self.metadata(),
            native: NativeId {
                door: Door::Swarm,
                scope: scope(self.swarm.swarm_id, self.sender, &self.identity.agent),
                id: envelope.message_id.clone(),
            },
            key: None,
            native_is_id: false,
            // Another member may have resent a message that its sender signed with a contested key.
            verified: self.is_whole || self.swarm.rivals(self.sender).is_empty(),
            route: Some(Route::Peer { agent }),
            signed: Some(Payload::of(envelope).bytes()),
            allow_unregistered: true,
            restored: None,
        })
    }

    /// What it is for. A peer's word counts where it is signed, and never for what would be typed into a terminal.
    fn kind(&self) -> Option<Kind> {
        let told = self
            .envelope
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(extra::KIND))
            .and_then(Value::as_str);
        let told = told.filter(|kind| self.is_whole && Kind::ACTIONS.contains(kind) && *kind != "execute");
        let is_message = self.envelope.kind == MessageType::Message;
        Kind::parse(told.filter(|_| is_message).unwrap_or(self.envelope.kind.as_str())).ok()
    }

    fn metadata(&self) -> Map<String, Value> {
        let envelope = self.envelope;
        let mut fields = Map::new();
        let mut keep = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(field.to_owned(), value);
            }
        };
        // What is read from JSON can be written as JSON.
        let value = |value: Option<Result<Value, serde_json::Error>>| value.and_then(Result::ok);
        keep("in_reply_to", envelope.in_reply_to.clone().map(Value::from));
        keep("thread_id", envelope.thread_id.clone().map(Value::from));
        keep("priority", envelope.priority.map(|priority| priority.as_str().into()));
        keep("expires_at", envelope.expires_at.clone().map(Value::from));
        keep("references", value(envelope.references.as_ref().map(serde_json::to_value)));
        keep("attachments", value(envelope.attachments.as_ref().map(serde_json::to_value)));
        let mut told = envelope.metadata.clone().unwrap_or_default();
        told.remove(ENVELOPE_SIGNATURE);
        // A retry of a roster that has changed meanwhile is the same message.
        told.remove(extra::EPOCH);
        keep("metadata", (!told.is_empty()).then_some(Value::Object(told)));
        let mut metadata = Map::new();
        metadata.insert(key::TYPE.to_owned(), envelope.kind.as_str().into());
        metadata.insert(key::SENDER.to_owned(), self.sender.as_str().into());
        metadata.insert(key::RECIPIENT.to_owned(), envelope.recipient.clone().into());
        if !fields.is_empty() {
            let place = if self.is_whole { key::SIGNED } else { key::UNSIGNED };
            metadata.insert(place.to_owned(), Value::Object(fields));
        }
        metadata
    }
}

/// What a message of the hub is called in a swarm: the id it came in with or was made with, or one that follows from its
/// own, so that it has the same one whenever it is tried.
pub(crate) fn wire_id(message: &Message, swarm: Uuid) -> String {
    let native = &message.origin.native;
    if native.door == Door::Swarm && native.scope.starts_with(&swarm.to_string()) {
        return native.id.clone();
    }
    derived_id(message.id, swarm)
}

fn derived_id(id: MessageId, swarm: Uuid) -> String {
    let mut hash = Sha256::new();
    hash.update(b"switchboard-swarm");
    hash.update(swarm.as_bytes());
    hash.update(id.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

/// Whether a message was written to a swarm or to somebody in it, so that it has an id there.
pub(crate) fn is_in(message: &Message, swarm: &Swarm) -> bool {
    match &message.to {
        Address::Agent(agent) => agent.realm.as_ref() == Some(&swarm.realm),
        Address::Group(GroupId::Swarm(realm)) => *realm == swarm.realm,
        _ => message.from.realm.as_ref() == Some(&swarm.realm),
    }
}

/// The type of a message of the hub on the wire.
pub(crate) fn wire_type(message: &Message) -> MessageType {
    // Only the door itself speaks for the swarm; what others call system is a message.
    let is_ours = message.origin.native.door == Door::Swarm;
    match MessageType::from_word(message.kind.as_str()) {
        Some(MessageType::System) if is_ours => MessageType::System,
        Some(MessageType::Notification) => MessageType::Notification,
        _ => MessageType::Message,
    }
}

/// What goes out: a message of the hub, and what it answers.
pub(crate) struct Leaving<'a> {
    pub(crate) message: &'a Message,
    pub(crate) swarm: &'a Swarm,
    pub(crate) identity: &'a Identity,
    pub(crate) recipient: &'a PeerId,
    /// What the message it answers is called in the swarm.
    pub(crate) in_reply_to: Option<String>,
    /// What the first message of its conversation is called in the swarm.
    pub(crate) thread: Option<String>,
    pub(crate) now: Timestamp,
}

impl Leaving<'_> {
    /// Whether it was written to the whole swarm.
    fn is_broadcast(&self) -> bool {
        matches!(&self.message.to, Address::Group(_))
    }

    /// The envelope, signed, as the text that is sent. Signed anew whenever it is tried: others refuse what is old.
    pub(crate) fn to_text(&self, key: &SecretKey) -> String {
        let mut envelope = self.envelope();
        envelope.signature = Payload::of(&envelope).sign(key);
        // A struct that was made of JSON and texts can always be written.
        let value = serde_json::to_value(&envelope).unwrap_or_default();
        if let Some(signature) = sign_envelope(key, &value) {
            let metadata = envelope.metadata.get_or_insert_default();
            metadata.insert(ENVELOPE_SIGNATURE.to_owned(), signature.into());
        }
        serde_json::to_string(&envelope).unwrap_or_default()
    }

    fn envelope(&self) -> Envelope {
        let message = self.message;
        let is_fresh = self.now.duration_since(message.sent_at).abs() < FRESH;
        let signed_at = if is_fresh { message.sent_at } else { self.now };
        let (mut more, told) = (self.extra(), &message.metadata);
        if let Some(Value::Object(given)) = told.get(key::METADATA) {
            for (name, value) in given {
                more.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        let own_thread = || told.get(key::THREAD).and_then(Value::as_str).map(str::to_owned);
        let priority = told.get(key::PRIORITY).cloned().and_then(|value| serde_json::from_value(value).ok());
        Envelope {
            protocol_version: PROTOCOL_VERSION.to_owned(),
            message_id: wire_id(message, self.swarm.swarm_id),
            timestamp: stamp::render(signed_at),
            sender: Sender {
                agent_id: self.identity.agent.to_string(),
                endpoint: self.identity.endpoint.to_string(),
            },
            recipient: if self.is_broadcast() { BROADCAST.to_owned() } else { self.recipient.to_string() },
            swarm_id: self.swarm.swarm_id.to_string(),
            kind: wire_type(message),
            content: message.body.clone(),
            signature: String::new(),
            in_reply_to: self.in_reply_to.clone(),
            thread_id: own_thread().or_else(|| self.thread.clone()),
            priority: priority.filter(|priority| *priority != Priority::Normal),
            expires_at: message.expires_at.map(stamp::render),
            attachments: read(told, key::ATTACHMENTS),
            references: read(told, key::REFERENCES),
            metadata: (!more.is_empty()).then_some(more),
        }
    }

    fn extra(&self) -> Map<String, Value> {
        let mut extra = Map::new();
        extra.insert(extra::EPOCH.to_owned(), self.swarm.epoch.into());
        if self.identity.name().map(AgentId::local).as_ref() != Some(&self.message.from) {
            extra.insert(extra::ON_BEHALF_OF.to_owned(), self.message.from.to_string().into());
        }
        if matches!(self.message.to, Address::Group(GroupId::Channel(_))) {
            extra.insert(extra::POST.to_owned(), self.message.id.to_string().into());
        }
        let kind = self.message.kind.as_str();
        if Kind::ACTIONS.contains(&kind) && kind != "execute" {
            extra.insert(extra::KIND.to_owned(), kind.into());
        }
        extra
    }
}

fn read<T: serde::de::DeserializeOwned>(metadata: &Map<String, Value>, key: &str) -> Option<T> {
    metadata.get(key).cloned().and_then(|value| serde_json::from_value(value).ok())
}

/// A message that an agent of ours, or the hub, writes into a swarm.
pub(crate) struct Written {
    pub(crate) id: MessageId,
    pub(crate) wire_id: Uuid,
    pub(crate) from: AgentId,
    pub(crate) to: Address,
    pub(crate) kind: MessageType,
    pub(crate) text: String,
    pub(crate) now: Timestamp,
}

impl Written {
    /// The message as the hub takes it in.
    pub(crate) fn into_draft(self, swarm: Uuid) -> Option<Draft> {
        Some(Draft {
            id: self.id,
            from: self.from,
            to: self.to,
            kind: Kind::parse(self.kind.as_str()).ok()?,
            body: self.text,
            in_reply_to: None,
            sent_at: self.now,
            expires_at: None,
            metadata: Map::new(),
            native: NativeId { door: Door::Swarm, scope: swarm.to_string(), id: self.wire_id.to_string() },
            key: None,
            native_is_id: false,
            verified: true,
            route: None,
            signed: None,
            allow_unregistered: false,
            restored: None,
        })
    }
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;
