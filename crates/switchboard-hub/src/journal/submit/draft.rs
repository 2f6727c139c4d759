//! Drafts: messages that the hub has not accepted yet.

use jiff::Timestamp;
use serde_json::{Map, Value};
use switchboard_core::{
    Address, AgentId, DeliveryState, Hop, Kind, Message, MessageId, NativeId, Origin, Route,
};

use crate::error::HubError;
use crate::store::rows;

/// Message as a door submits it. The hub adds the thread, the reply chain and the journal number.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Id of the message, from [`crate::Hub::next_id`] or derived from facts that its door knows.
    pub id: MessageId,
    /// The sender.
    pub from: AgentId,
    /// The recipient.
    pub to: Address,
    /// Kind of the message.
    pub kind: Kind,
    /// The body.
    pub body: String,
    /// The message to which this message replies.
    pub in_reply_to: Option<MessageId>,
    /// Time when the message was written.
    pub sent_at: Timestamp,
    /// Time when the message expires.
    pub expires_at: Option<Timestamp>,
    /// Further metadata.
    pub metadata: Map<String, Value>,
    /// Native id: the message's id in its protocol, used for deduplication.
    ///
    /// A submission with a known native id is a no-op with the same result.
    pub native: NativeId,
    /// Idempotency key of the sender: a retry with the same key is deduplicated.
    pub key: Option<String>,
    /// True if the native id is the message id in another spelling.
    ///
    /// The index of message ids then serves for both.
    pub native_is_id: bool,
    /// True if the door has verified that `from` wrote the message.
    pub verified: bool,
    /// Route through which the message arrived.
    pub route: Option<Route>,
    /// The exact signed bytes, if the message is signed.
    pub signed: Option<Vec<u8>>,
    /// True if an unregistered local recipient may be reached through its mailbox.
    pub allow_unregistered: bool,
    /// Recipients and delivery states of a message that is restored from mailbox files.
    ///
    /// Set after the database was lost; no delivery is planned then.
    pub restored: Option<Vec<(AgentId, DeliveryState)>>,
}

/// Message that another hub relayed, with its position in a conversation that began elsewhere.
#[derive(Debug, Clone)]
pub struct RelayedMessage {
    /// The message.
    pub draft: Draft,
    /// First message of the conversation. If the parent message is known here, the parent's thread is used instead.
    pub thread: MessageId,
    /// Earlier hops of the reply chain. If the parent message is known here, its hops are used instead.
    pub via: Vec<Hop>,
}

/// Validated draft that is ready for the writer.
///
/// All work that can run before the transaction is done.
pub(crate) struct Prepared {
    pub(super) message: Message,
    pub(super) digest: [u8; 32],
    pub(super) key: Option<String>,
    pub(super) native_is_id: bool,
    pub(super) allow_unregistered: bool,
    pub(super) restored: Option<Vec<(AgentId, DeliveryState)>>,
    pub(super) submitter: Submitter,
}

/// Kind of submitter of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Submitter {
    /// A door that submits on behalf of the sender.
    Door,
    /// A door that submits in the hub's own name.
    Hub,
    /// A door that still has to write the file. The door gets the lease on the in-place deliveries.
    FileWriter,
}

impl Prepared {
    /// Validates a draft: checks the size limits and computes the digest, on the submitter's thread.
    pub(crate) fn new(draft: Draft, body_limit: usize, metadata_limit: usize) -> Result<Self, HubError> {
        if draft.body.len() > body_limit {
            return Err(HubError::BodyTooLarge { size: draft.body.len(), limit: body_limit });
        }
        let size = rows::metadata_text(&draft.metadata).map_or(0, |text| text.len());
        if size > metadata_limit {
            return Err(HubError::MetadataTooLarge { size, limit: metadata_limit });
        }
        let message = Message {
            id: draft.id,
            from: draft.from,
            to: draft.to,
            kind: draft.kind,
            body: draft.body,
            in_reply_to: draft.in_reply_to,
            thread: draft.id,
            sent_at: draft.sent_at,
            expires_at: draft.expires_at,
            metadata: draft.metadata,
            origin: Origin { native: draft.native, verified: draft.verified, route: draft.route },
            via: Vec::new(),
            signed: draft.signed,
        };
        let digest = rows::digest(&message);
        let Draft { key, native_is_id, allow_unregistered, restored, .. } = draft;
        Ok(Self {
            message,
            digest,
            key,
            native_is_id,
            allow_unregistered,
            restored,
            submitter: Submitter::Door,
        })
    }

    /// Marks the message as the hub's own.
    pub(crate) fn in_hub_name(self) -> Self {
        Self { submitter: Submitter::Hub, ..self }
    }

    /// Leases in-place deliveries to the submitter, who still has to write the file.
    pub(crate) fn leased(self) -> Self {
        Self { submitter: Submitter::FileWriter, ..self }
    }

    /// Validates a relayed message of another hub.
    pub(crate) fn relayed(
        relayed: RelayedMessage,
        body_limit: usize,
        metadata_limit: usize,
    ) -> Result<Self, HubError> {
        let mut prepared = Self::new(relayed.draft, body_limit, metadata_limit)?;
        prepared.message.thread = relayed.thread;
        prepared.message.via = relayed.via;
        Ok(prepared)
    }
}
