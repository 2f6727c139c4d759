//! What other hubs are still to be told of their messages: that somebody here was shown one, or is done with it.
//!
//! It is noted in the transaction in which it became true, by whichever process, and struck out when the other hub's
//! stream has it. So it is told however often a process dies in between, and only the last of it where much happened.

use rusqlite::{Connection, params};
use switchboard_core::{Address, Delivery, DeliveryState, Door, MessageId, Name};

use crate::error::HubError;
use crate::link::ReceiptStatus;
use crate::store::rows::{self, DELIVERY_COLUMNS, SPREAD, state_number};
use crate::store::writer::Work;

/// Under this topic it is noted. The keys are numbers of deliveries, the values their states.
const TOPIC: &str = "owed";

/// Something that another hub is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReceipt {
    key: String,
    value: String,
    /// What it is; nothing where the message is gone, and with it everything that could be said.
    pub update: Option<ReceiptUpdate>,
}

/// What became of a message of another hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptUpdate {
    /// The hub that the message came from.
    pub hub: Name,
    /// The message.
    pub id: MessageId,
    /// Whom it was for, by the name that the other hub has for them: it knows nothing of whom mail is forwarded to here.
    pub agent: Name,
    /// What it is told.
    pub status: ReceiptStatus,
}

/// Notes that a delivery got into a state that the hub of its message is told of; nothing where that is this hub.
pub(crate) fn note(tx: &Work<'_>, delivery: &Delivery, state: DeliveryState) -> Result<(), HubError> {
    if !matches!(state, DeliveryState::Seen | DeliveryState::Acknowledged) {
        return Ok(());
    }
    tx.db
        .prepare_cached(
            "INSERT OR REPLACE INTO notes (door, topic, key, value, at) \
             SELECT ?1, ?2, ?3, ?4, ?5 FROM messages WHERE seq = ?6 AND door = ?1",
        )?
        .execute(params![
            Door::Nats.as_str(),
            TOPIC,
            delivery.id.0.to_string(),
            state_number(state).to_string(),
            tx.now.as_microsecond(),
            delivery.id.0 / SPREAD
        ])?;
    Ok(())
}

/// What is to be told, at most so much of it.
pub(crate) fn pending(db: &Connection, limit: usize) -> Result<Vec<PendingReceipt>, HubError> {
    let sql = format!(
        "SELECT n.key, n.value, m.id, m.scope, m.recipient, {DELIVERY_COLUMNS} FROM notes n \
         LEFT JOIN deliveries d ON d.id = CAST(n.key AS INTEGER) \
         LEFT JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE n.door = ?1 AND n.topic = ?2 LIMIT ?3"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![Door::Nats.as_str(), TOPIC, limit])?;
    let mut owed = Vec::new();
    while let Some(row) = rows.next()? {
        let update = || {
            let id = MessageId::from_bytes(row.get(2).ok()?);
            let delivery = rows::delivery(row, 5, id).ok()?;
            let status = match delivery.state {
                DeliveryState::Seen => ReceiptStatus::Seen,
                DeliveryState::Acknowledged => ReceiptStatus::Acknowledged { note: delivery.note },
                // It expired since, which the other hub finds out by itself.
                _ => return None,
            };
            let agent = match row.get::<_, String>(4).ok()?.parse().ok()? {
                Address::Agent(agent) => agent.name,
                _ => delivery.agent.name,
            };
            Some(ReceiptUpdate { hub: row.get::<_, String>(3).ok()?.parse().ok()?, id, agent, status })
        };
        owed.push(PendingReceipt { key: row.get(0)?, value: row.get(1)?, update: update() });
    }
    Ok(owed)
}

/// Strikes out what was told, except where there is more to tell by now.
pub(crate) fn clear(tx: &Work<'_>, owed: &[PendingReceipt]) -> Result<(), HubError> {
    for PendingReceipt { key, value, .. } in owed {
        tx.db
            .prepare_cached("DELETE FROM notes WHERE door = ?1 AND topic = ?2 AND key = ?3 AND value = ?4")?
            .execute([Door::Nats.as_str(), TOPIC, key, value])?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "owed_tests.rs"]
mod tests;
