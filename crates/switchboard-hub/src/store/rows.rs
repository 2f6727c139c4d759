//! Conversion between database rows and types of the core.

use std::borrow::Cow;

use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, Row, ToSql, params};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use switchboard_core::{
    Address, AgentId, Delivery, DeliveryId, DeliveryState, Door, Hop, Kind, Message, MessageId, Milestones,
    NativeId, Origin, Route,
};
use switchboard_sys::clock::timestamp_from_micros;

use crate::error::HubError;
use crate::journal::chain::{self, RowHash};

/// Factor between journal numbers and delivery ids: a message's deliveries have the ids `seq * SPREAD + n`.
pub(crate) const SPREAD: i64 = 1 << 16;

/// Returns the id range of a message's deliveries: the first id, and the first id after the range.
///
/// A number so high that it can only be damage yields an empty range.
pub(crate) fn delivery_ids(seq: i64) -> [i64; 2] {
    [seq.saturating_mul(SPREAD), seq.saturating_add(1).saturating_mul(SPREAD)]
}

/// Returns the number under which a delivery state is stored.
pub(crate) fn state_number(state: DeliveryState) -> i64 {
    match state {
        DeliveryState::Queued => 0,
        DeliveryState::InFlight => 1,
        DeliveryState::Delivered => 2,
        DeliveryState::Seen => 3,
        DeliveryState::Acknowledged => 4,
        DeliveryState::Refused => 5,
        DeliveryState::Failed { .. } => 6,
        DeliveryState::Expired => 7,
    }
}

fn state_from(number: i64, due_at: i64) -> DeliveryState {
    match number {
        0 => DeliveryState::Queued,
        1 => DeliveryState::InFlight,
        2 => DeliveryState::Delivered,
        3 => DeliveryState::Seen,
        4 => DeliveryState::Acknowledged,
        6 => DeliveryState::Failed { retry_at: timestamp_from_micros(due_at) },
        7 => DeliveryState::Expired,
        // An unknown number is read as a final state, because a final state triggers no delivery.
        _ => DeliveryState::Refused,
    }
}

/// Computes the digest of a message's content.
///
/// The digest decides whether two messages with one native id are duplicates, and reveals damage of a stored row.
pub(crate) fn digest(message: &Message) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(bytes);
    };
    part(message.from.key().as_bytes());
    part(message.to.to_string().to_ascii_lowercase().as_bytes());
    part(message.kind.as_str().as_bytes());
    part(message.body.as_bytes());
    part(message.in_reply_to.as_ref().map_or(&[][..], |id| id.as_bytes()));
    part(metadata_text(&message.metadata).unwrap_or_default().as_bytes());
    part(message.signed.as_deref().unwrap_or_default());
    hash.finalize().into()
}

/// Hashes all fields of a row.
///
/// These are the digest of the content, and the fields that the digest omits: identity, times, origin and position in
/// the conversation.
pub(crate) fn content(message: &Message, accepted_at: Timestamp, digest: &[u8; 32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(bytes);
    };
    let native = &message.origin.native;
    let times = [Some(message.sent_at), Some(accepted_at), message.expires_at];
    part(digest);
    part(message.id.as_bytes());
    part(message.thread.as_bytes());
    for time in times {
        part(&time.map(|time| time.as_microsecond().to_le_bytes()).unwrap_or_default());
    }
    part(native.door.as_str().as_bytes());
    part(native.scope.as_bytes());
    part(native.id.as_bytes());
    part(&[u8::from(message.origin.verified), u8::from(message.expires_at.is_some())]);
    part(message.origin.route.as_ref().map(json).unwrap_or_default().as_bytes());
    part(json(&message.via).as_bytes());
    hash.finalize().into()
}

/// Returns the seal, which is the checksum of a row.
///
/// Eight bytes suffice against accidents; the seal does not protect against tampering.
pub(crate) fn seal(content: &[u8; 32]) -> [u8; 8] {
    let mut seal = [0; 8];
    seal.copy_from_slice(&content[..8]);
    seal
}

/// Serializes metadata for the journal, or returns `None` if it is empty. `serde_json` sorts the keys.
pub(crate) fn metadata_text(metadata: &Map<String, Value>) -> Option<String> {
    (!metadata.is_empty()).then(|| Value::Object(metadata.clone()).to_string())
}

/// Columns of `messages` in the order that [`Stored::read`] expects.
pub(crate) const MESSAGE_COLUMNS: &str = "m.seq, m.id, m.sender, m.recipient, m.kind, m.body, m.in_reply_to, \
     m.thread, m.sent_at, m.accepted_at, m.expires_at, m.metadata, m.door, m.scope, m.native_id, m.verified, \
     m.route, m.via, m.signed, m.digest, m.seal";

/// Number of columns in [`MESSAGE_COLUMNS`].
pub(crate) const MESSAGE_WIDTH: usize = 21;

/// Message as stored in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Number of the message in order of acceptance, which is the cursor of every listing.
    pub seq: i64,
    /// Time of acceptance by the hub's clock.
    pub accepted_at: Timestamp,
    /// The message.
    pub message: Message,
}

impl Stored {
    /// Reads a row of [`MESSAGE_COLUMNS`] and checks it against its checksums.
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, HubError> {
        let (stored, digest) = Self::read_unsealed(row)?;
        let seal = row.get::<_, [u8; 8]>(20).ok();
        if seal == Some(self::seal(&content(&stored.message, stored.accepted_at, &digest))) {
            return Ok(stored);
        }
        Err(HubError::DamagedMessage { id: stored.message.id.to_string() })
    }

    /// Reads a row of [`MESSAGE_COLUMNS`] and checks only its content, not its seal.
    pub(crate) fn read_unsealed(row: &Row<'_>) -> Result<(Self, [u8; 32]), HubError> {
        let seq: i64 = row.get(0)?;
        match Self::parse(row) {
            Some((stored, Some(expected))) if digest(&stored.message) == expected => Ok((stored, expected)),
            _ => {
                let id = row.get::<_, [u8; 16]>(1).map(MessageId::from_bytes);
                Err(HubError::DamagedMessage {
                    id: id.map_or_else(|_| format!("#{seq}"), |id| id.to_string()),
                })
            }
        }
    }

    /// Reads a row of [`MESSAGE_COLUMNS`] without checks, and its digest if the digest is well-formed.
    pub(crate) fn parse(row: &Row<'_>) -> Option<(Self, Option<[u8; 32]>)> {
        let seq: i64 = row.get(0).ok()?;
        let text = |column| row.get::<_, String>(column).ok();
        let id = |column| row.get::<_, [u8; 16]>(column).map(MessageId::from_bytes);
        let optional = |column| row.get::<_, Option<String>>(column).ok();
        let message = Message {
            id: id(1).ok()?,
            from: text(2)?.parse().ok()?,
            to: text(3)?.parse().ok()?,
            kind: Kind::parse(&text(4)?).ok()?,
            body: text(5)?,
            in_reply_to: row.get::<_, Option<[u8; 16]>>(6).ok()?.map(MessageId::from_bytes),
            thread: id(7).ok()?,
            sent_at: timestamp_from_micros(row.get(8).ok()?),
            expires_at: row.get::<_, Option<i64>>(10).ok()?.map(timestamp_from_micros),
            metadata: match optional(11)? {
                Some(json) => serde_json::from_str(&json).ok()?,
                None => Map::new(),
            },
            origin: Origin {
                native: NativeId { door: Door::from_name(&text(12)?)?, scope: text(13)?, id: text(14)? },
                verified: row.get(15).ok()?,
                route: match optional(16)? {
                    Some(json) => serde_json::from_str(&json).ok()?,
                    None => None,
                },
            },
            via: match optional(17)? {
                Some(json) => serde_json::from_str(&json).ok()?,
                None => Vec::new(),
            },
            signed: row.get(18).ok()?,
        };
        let accepted_at = timestamp_from_micros(row.get(9).ok()?);
        Some((Self { seq, accepted_at, message }, row.get(19).ok()))
    }
}

/// Insert statements for messages and deliveries, prepared once per transaction.
pub(crate) struct Inserts<'t> {
    message: CachedStatement<'t>,
    delivery: CachedStatement<'t>,
}

impl<'t> Inserts<'t> {
    pub(crate) fn prepare(connection: &'t Connection) -> rusqlite::Result<Self> {
        let message = connection.prepare_cached(
            "INSERT INTO messages (seq, id, sender, recipient, kind, body, in_reply_to, thread, sent_at, \
             accepted_at, expires_at, metadata, door, scope, native_id, verified, route, via, signed, digest, seal, chain) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)",
        )?;
        let delivery = connection.prepare_cached(
            "INSERT INTO deliveries (id, agent, door, route, state, attempts, fence, due_at, expires_at, owner, \
             note, queued_at, in_flight_at, delivered_at, seen_at, acknowledged_at, ended_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?;
        Ok(Self { message, delivery })
    }

    /// Inserts a message into the chain; returns the hash of the new row.
    ///
    /// `previous` is the hash of the row before it. `digest` is computed by [`digest`].
    pub(crate) fn message(
        &mut self,
        seq: i64,
        message: &Message,
        accepted_at: Timestamp,
        digest: &[u8; 32],
        previous: &RowHash,
    ) -> rusqlite::Result<RowHash> {
        let content = content(message, accepted_at, digest);
        let chain = chain::hash_row(previous, seq, &content);
        let via = (!message.via.is_empty()).then(|| json(&message.via.iter().collect::<Vec<&Hop>>()));
        let recipient = match &message.to {
            Address::Agent(agent) => agent_text(agent),
            other => other.to_string().into(),
        };
        let values: [&dyn ToSql; 22] = [
            &seq,
            message.id.as_bytes(),
            &agent_text(&message.from),
            &recipient,
            &message.kind.as_str(),
            &message.body,
            &message.in_reply_to.as_ref().map(MessageId::as_bytes),
            message.thread.as_bytes(),
            &message.sent_at.as_microsecond(),
            &accepted_at.as_microsecond(),
            &message.expires_at.map(Timestamp::as_microsecond),
            &metadata_text(&message.metadata),
            &message.origin.native.door.as_str(),
            &message.origin.native.scope,
            &message.origin.native.id,
            &message.origin.verified,
            &message.origin.route.as_ref().map(json),
            &via,
            &message.signed,
            digest,
            &seal(&content),
            &chain,
        ];
        self.message.execute(values)?;
        Ok(chain)
    }

    /// Inserts a delivery.
    pub(crate) fn delivery(
        &mut self,
        delivery: &Delivery,
        queued_at: Timestamp,
        due_at: Timestamp,
        expires_at: Option<Timestamp>,
        owner: Option<&str>,
    ) -> rusqlite::Result<()> {
        let micros = |time: Option<Timestamp>| time.map(Timestamp::as_microsecond);
        let Milestones { in_flight, delivered, seen, acknowledged, ended, .. } = delivery.milestones;
        self.delivery.execute(params![
            delivery.id.0,
            agent_text(&delivery.agent),
            delivery.route.door().as_str(),
            json(&delivery.route),
            state_number(delivery.state),
            delivery.attempts,
            due_at.as_microsecond(),
            micros(expires_at),
            owner,
            delivery.note,
            queued_at.as_microsecond(),
            micros(in_flight),
            micros(delivered),
            micros(seen),
            micros(acknowledged),
            micros(ended),
        ])?;
        Ok(())
    }
}

/// Returns an agent's id as stored, without copying it for agents of this hub.
fn agent_text(agent: &AgentId) -> Cow<'_, str> {
    match &agent.realm {
        None => agent.name.as_str().into(),
        Some(_) => agent.to_string().into(),
    }
}

/// Serializes a route or a list of hops as JSON; neither can fail.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Columns of `deliveries` in the order that [`delivery`] expects.
pub(crate) const DELIVERY_COLUMNS: &str = "d.id, d.agent, d.route, d.state, d.attempts, d.due_at, d.note, \
     d.queued_at, d.in_flight_at, d.delivered_at, d.seen_at, d.acknowledged_at, d.ended_at";

/// Reads a row of [`DELIVERY_COLUMNS`], starting at column `at`.
///
/// An unreadable field counts as damage of this one message, so that a listing can continue with the next message.
pub(crate) fn delivery(row: &Row<'_>, at: usize, message: MessageId) -> Result<Delivery, HubError> {
    let read = || -> Option<Delivery> {
        let time =
            |column: usize| row.get::<_, Option<i64>>(at + column).map(|t| t.map(timestamp_from_micros)).ok();
        Some(Delivery {
            id: DeliveryId(row.get(at).ok()?),
            message,
            agent: row.get::<_, String>(at + 1).ok()?.parse::<AgentId>().ok()?,
            route: serde_json::from_str::<Route>(&row.get::<_, String>(at + 2).ok()?).ok()?,
            state: state_from(row.get(at + 3).ok()?, row.get(at + 5).ok()?),
            attempts: row.get(at + 4).ok()?,
            note: row.get(at + 6).ok()?,
            milestones: Milestones {
                queued: time(7)?,
                in_flight: time(8)?,
                delivered: time(9)?,
                seen: time(10)?,
                acknowledged: time(11)?,
                ended: time(12)?,
            },
        })
    };
    read().ok_or_else(|| HubError::DamagedMessage { id: message.to_string() })
}
