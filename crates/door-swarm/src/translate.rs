//! Conversion between wire messages and core messages, as pure functions.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use switchboard_core::{Address, AgentId, Door, GroupId, Kind, Message, MessageId, NativeId, Route};
use switchboard_hub::Draft;
use uuid::Uuid;

use crate::agent_id::{BROADCAST, PeerId};
use crate::keys::SecretKey;
use crate::model::{Identity, Member, Swarm};
use crate::signing::{ENVELOPE_SIGNATURE, Payload, sign_envelope};
use crate::timestamp;
use crate::wire::{Envelope, MessageType, PROTOCOL_VERSION, Priority, Sender};

/// Metadata keys for wire fields that the core does not have.
pub(crate) mod key {
    /// Wire type of an incoming message.
    pub(crate) const TYPE: &str = "swarm.type";
    /// The sender's id on the wire.
    pub(crate) const SENDER: &str = "swarm.sender";
    /// The recipient on the wire: an id, or `broadcast`.
    pub(crate) const RECIPIENT: &str = "swarm.recipient";
    /// Fields that the sender has signed.
    pub(crate) const SIGNED: &str = "swarm.signed";
    /// Unsigned fields, which are displayed as such and never used for a decision.
    pub(crate) const UNSIGNED: &str = "swarm.unsigned";
    /// Priority of an outgoing message; the keys below are also fields of outgoing messages.
    pub(crate) const PRIORITY: &str = "swarm.priority";
    pub(crate) const REFERENCES: &str = "swarm.references";
    pub(crate) const ATTACHMENTS: &str = "swarm.attachments";
    pub(crate) const METADATA: &str = "swarm.metadata";
    pub(crate) const THREAD: &str = "swarm.thread";
}

/// Envelope metadata keys that this program writes and reads.
mod extra {
    /// The local agent on whose behalf a hub's swarm agent sends.
    pub(super) const ON_BEHALF_OF: &str = "on_behalf_of";
    /// The message kind of the sending hub.
    pub(super) const KIND: &str = "kind";
    /// The sender's roster epoch.
    pub(super) const EPOCH: &str = "roster_epoch";
    /// The id of a channel post, common to all hubs that share the channel.
    pub(super) const POST: &str = "post";
}

/// Maximum age at which a message is still signed with its original time.
const FRESH_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// An incoming message that has passed all checks.
pub(crate) struct IncomingMessage<'a> {
    pub(crate) envelope: &'a Envelope,
    pub(crate) swarm: &'a Swarm,
    pub(crate) identity: &'a Identity,
    pub(crate) sender: &'a PeerId,
    pub(crate) member: &'a Member,
    /// True if the whole envelope is signed.
    pub(crate) is_whole: bool,
    /// The local message that this message answers, and the local author of that message.
    pub(crate) parent: Option<(MessageId, Option<AgentId>)>,
    pub(crate) timestamp: Timestamp,
    pub(crate) id: MessageId,
}

/// Returns the scope of a sender's message ids for one of our agents.
///
/// Each sender has its own scope, so that no sender can occupy another sender's id.
pub(crate) fn scope(swarm: Uuid, sender: &PeerId, me: &PeerId) -> String {
    format!("{swarm} {sender} {me}")
}

/// Returns the sender's roster epoch.
pub(crate) fn sender_epoch(envelope: &Envelope) -> Option<u64> {
    envelope.metadata.as_ref()?.get(extra::EPOCH)?.as_u64()
}

/// Returns the id of the channel post that a message carries, as claimed by the sending hub.
pub(crate) fn channel_post(envelope: &Envelope) -> Option<MessageId> {
    envelope.metadata.as_ref()?.get(extra::POST)?.as_str()?.parse().ok()
}

impl IncomingMessage<'_> {
    /// Converts the message to a draft for the hub.
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
        let expires_at = envelope.expires_at.as_deref().filter(|_| self.is_whole).and_then(timestamp::parse);
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
            // If the sender's key is contested, another member may have resent a message that the sender signed.
            verified: self.is_whole || self.swarm.rivals(self.sender).is_empty(),
            route: Some(Route::Peer { agent }),
            signed: Some(Payload::of(envelope).bytes()),
            allow_unregistered: true,
            restored: None,
        })
    }

    /// Returns the message kind.
    ///
    /// The peer's value counts only if it is signed. The kind `execute` is never accepted from a peer, because it would
    /// be typed into a terminal.
    fn kind(&self) -> Option<Kind> {
        let bridged_kind = self
            .envelope
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(extra::KIND))
            .and_then(Value::as_str);
        let bridged_kind =
            bridged_kind.filter(|kind| self.is_whole && Kind::ACTIONS.contains(kind) && *kind != "execute");
        let is_message = self.envelope.kind == MessageType::Message;
        Kind::parse(bridged_kind.filter(|_| is_message).unwrap_or(self.envelope.kind.as_str())).ok()
    }

    fn metadata(&self) -> Map<String, Value> {
        let envelope = self.envelope;
        let mut fields = Map::new();
        let mut set_field = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(field.to_owned(), value);
            }
        };
        // Values that were parsed from JSON always serialize.
        let value = |value: Option<Result<Value, serde_json::Error>>| value.and_then(Result::ok);
        set_field("in_reply_to", envelope.in_reply_to.clone().map(Value::from));
        set_field("thread_id", envelope.thread_id.clone().map(Value::from));
        set_field("priority", envelope.priority.map(|priority| priority.as_str().into()));
        set_field("expires_at", envelope.expires_at.clone().map(Value::from));
        set_field("references", value(envelope.references.as_ref().map(serde_json::to_value)));
        set_field("attachments", value(envelope.attachments.as_ref().map(serde_json::to_value)));
        let mut bridged = envelope.metadata.clone().unwrap_or_default();
        bridged.remove(ENVELOPE_SIGNATURE);
        // A retry after a roster change is still the same message, so the epoch is removed.
        bridged.remove(extra::EPOCH);
        set_field("metadata", (!bridged.is_empty()).then_some(Value::Object(bridged)));
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

/// Returns the wire id of a hub message in a swarm.
///
/// This is the message's native id, or one derived from its hub id, so that every retry has the same id.
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

/// Returns true if a message belongs to the swarm.
///
/// A message to an agent or a swarm belongs to the swarm of its recipient. Any other message belongs to the swarm of
/// its sender.
pub(crate) fn belongs_to(message: &Message, swarm: &Swarm) -> bool {
    match &message.to {
        Address::Agent(agent) => agent.realm.as_ref() == Some(&swarm.realm),
        Address::Group(GroupId::Swarm(realm)) => *realm == swarm.realm,
        _ => message.from.realm.as_ref() == Some(&swarm.realm),
    }
}

/// Returns the wire type of a hub message.
pub(crate) fn wire_type(message: &Message) -> MessageType {
    // Only the door itself sends system messages; a `system` message from any other source becomes a plain message.
    let is_ours = message.origin.native.door == Door::Swarm;
    match MessageType::from_wire(message.kind.as_str()) {
        Some(MessageType::System) if is_ours => MessageType::System,
        Some(MessageType::Notification) => MessageType::Notification,
        _ => MessageType::Message,
    }
}

/// An outgoing message and its wire references.
pub(crate) struct OutgoingEnvelope<'a> {
    pub(crate) message: &'a Message,
    pub(crate) swarm: &'a Swarm,
    pub(crate) identity: &'a Identity,
    pub(crate) recipient: &'a PeerId,
    /// Wire id of the message that this message answers.
    pub(crate) in_reply_to: Option<String>,
    /// Wire id of the first message of the thread.
    pub(crate) thread: Option<String>,
    pub(crate) now: Timestamp,
}

impl OutgoingEnvelope<'_> {
    /// Returns true if the message is addressed to the whole swarm.
    fn is_broadcast(&self) -> bool {
        matches!(&self.message.to, Address::Group(_))
    }

    /// Builds and signs the envelope as JSON. Each retry is signed again, because peers refuse old messages.
    pub(crate) fn to_text(&self, key: &SecretKey) -> String {
        let mut envelope = self.envelope();
        envelope.signature = Payload::of(&envelope).sign(key);
        // A struct of strings and JSON values always serializes.
        let value = serde_json::to_value(&envelope).unwrap_or_default();
        if let Some(signature) = sign_envelope(key, &value) {
            let metadata = envelope.metadata.get_or_insert_default();
            metadata.insert(ENVELOPE_SIGNATURE.to_owned(), signature.into());
        }
        serde_json::to_string(&envelope).unwrap_or_default()
    }

    fn envelope(&self) -> Envelope {
        let message = self.message;
        let is_fresh = self.now.duration_since(message.sent_at).abs() < FRESH_WITHIN;
        let signed_at = if is_fresh { message.sent_at } else { self.now };
        let (mut more, fields) = (self.extra(), &message.metadata);
        if let Some(Value::Object(given)) = fields.get(key::METADATA) {
            for (name, value) in given {
                more.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        let own_thread = || fields.get(key::THREAD).and_then(Value::as_str).map(str::to_owned);
        let priority =
            fields.get(key::PRIORITY).cloned().and_then(|value| serde_json::from_value(value).ok());
        Envelope {
            protocol_version: PROTOCOL_VERSION.to_owned(),
            message_id: wire_id(message, self.swarm.swarm_id),
            timestamp: timestamp::render(signed_at),
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
            expires_at: message.expires_at.map(timestamp::render),
            attachments: read(fields, key::ATTACHMENTS),
            references: read(fields, key::REFERENCES),
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

/// A message that a local agent or the hub sends to a swarm.
pub(crate) struct OutgoingDraft {
    pub(crate) id: MessageId,
    pub(crate) wire_id: Uuid,
    pub(crate) from: AgentId,
    pub(crate) to: Address,
    pub(crate) kind: MessageType,
    pub(crate) text: String,
    pub(crate) now: Timestamp,
}

impl OutgoingDraft {
    /// Converts the message to a draft for the hub.
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
