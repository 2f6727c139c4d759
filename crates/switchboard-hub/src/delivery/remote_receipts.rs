//! Receipts for other hubs: an agent of this hub has seen or acknowledged one of their messages.
//!
//! Any process records a receipt in the transaction that changes the delivery's state; the receipt is deleted when the
//! other hub's stream has stored it. It therefore survives any number of crashes, and only the latest state of a
//! delivery is sent.

use rusqlite::{Connection, params};
use switchboard_core::{Address, Delivery, DeliveryState, Door, MessageId, Name};

use crate::delivery::relay::ReceiptStatus;
use crate::error::HubError;
use crate::store::rows::{self, DELIVERY_COLUMNS, SPREAD, state_number};
use crate::store::writer::Transaction;

/// Topic of the notes that hold pending receipts: the key is a delivery's number, the value is its state.
const TOPIC: &str = "owed";

/// Pending receipt: it is still to be sent to another hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReceipt {
    key: String,
    value: String,
    /// The update, or `None` if the message was removed.
    ///
    /// Without the message there is nothing left to report.
    pub update: Option<ReceiptUpdate>,
}

/// Status update on a message that came from another hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptUpdate {
    /// The hub that the message came from.
    pub hub: Name,
    /// The message.
    pub id: MessageId,
    /// Recipient of the message, by the name that the other hub uses.
    ///
    /// The other hub does not know of forwards here.
    pub agent: Name,
    /// The status to report.
    pub status: ReceiptStatus,
}

/// Records a receipt for a message of another hub that was seen or acknowledged.
pub(crate) fn record(
    tx: &Transaction<'_>,
    delivery: &Delivery,
    state: DeliveryState,
) -> Result<(), HubError> {
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

/// Lists pending receipts, at most `limit`.
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
    let mut receipts = Vec::new();
    while let Some(row) = rows.next()? {
        let update = || {
            let id = MessageId::from_bytes(row.get(2).ok()?);
            let delivery = rows::delivery(row, 5, id).ok()?;
            let status = match delivery.state {
                DeliveryState::Seen => ReceiptStatus::Seen,
                DeliveryState::Acknowledged => ReceiptStatus::Acknowledged { note: delivery.note },
                // The delivery has expired in the meantime, which the other hub detects itself.
                _ => return None,
            };
            let agent = match row.get::<_, String>(4).ok()?.parse().ok()? {
                Address::Agent(agent) => agent.name,
                _ => delivery.agent.name,
            };
            Some(ReceiptUpdate { hub: row.get::<_, String>(3).ok()?.parse().ok()?, id, agent, status })
        };
        receipts.push(PendingReceipt { key: row.get(0)?, value: row.get(1)?, update: update() });
    }
    Ok(receipts)
}

/// Deletes sent receipts, unless their state has changed in the meantime.
pub(crate) fn clear(tx: &Transaction<'_>, receipts: &[PendingReceipt]) -> Result<(), HubError> {
    for PendingReceipt { key, value, .. } in receipts {
        tx.db
            .prepare_cached("DELETE FROM notes WHERE door = ?1 AND topic = ?2 AND key = ?3 AND value = ?4")?
            .execute([Door::Nats.as_str(), TOPIC, key, value])?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "remote_receipts_tests.rs"]
mod tests;
