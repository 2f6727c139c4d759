//! Delivery leases: which deliveries this process makes, and until when.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, params};
use switchboard_core::{Delivery, DeliveryId, DeliveryState, Door, Message, PlanEntry};
use switchboard_sys::clock::timestamp_from_micros;
use switchboard_sys::process_identity::ProcessIdentity;

use super::stage_handoff;
use super::state::refuse_damaged;
use crate::error::HubError;
use crate::store::rows::{self, DELIVERY_COLUMNS, MESSAGE_COLUMNS, MESSAGE_WIDTH, SPREAD, Stored};
use crate::store::writer::Transaction;

/// Inserts a planned delivery and leases it if possible.
///
/// The delivery is leased at once if its door is open here and has a free slot.
pub(crate) fn enqueue(
    tx: &mut Transaction<'_>,
    message: &Arc<Message>,
    seq: i64,
    number: usize,
    planned: PlanEntry,
    decided: Option<(DeliveryState, String)>,
) -> Result<Delivery, HubError> {
    let id =
        DeliveryId(rows::delivery_ids(seq)[0].saturating_add(i64::try_from(number).unwrap_or(SPREAD - 1)));
    let PlanEntry { agent, route, in_place } = planned;
    let door = route.door();
    let at_once = !in_place && decided.is_none() && !tx.waiting.contains(&door);
    let permit = if at_once { tx.doors.permit(door) } else { None };
    if at_once && permit.is_none() {
        tx.waiting.push(door);
    }
    let (state, note) = match decided {
        Some((state, note)) => (state, Some(note)),
        None if in_place => (DeliveryState::Delivered, None),
        None if permit.is_some() => (DeliveryState::InFlight, None),
        None => (DeliveryState::Queued, None),
    };
    let mut delivery = Delivery {
        id,
        message: message.id,
        agent,
        route,
        state,
        attempts: 0,
        note,
        milestones: <_>::default(),
    };
    let mut owner = None;
    let mut due = tx.now;
    delivery.milestones.queued = Some(tx.now);
    match state {
        DeliveryState::InFlight => {
            delivery.attempts = 1;
            delivery.milestones.in_flight = Some(tx.now);
            due = lease_end(tx);
            owner = Some(tx.doors.owner.clone());
        }
        DeliveryState::Delivered => delivery.milestones.delivered = Some(tx.now),
        DeliveryState::Refused | DeliveryState::Expired => delivery.milestones.ended = Some(tx.now),
        DeliveryState::Acknowledged => delivery.milestones.acknowledged = Some(tx.now),
        DeliveryState::Seen => delivery.milestones.seen = Some(tx.now),
        DeliveryState::Queued | DeliveryState::Failed { .. } => {}
    }
    // This process does not schedule deliveries of a closed door; a leased delivery becomes due when its lease ends.
    if state == DeliveryState::InFlight || (state == DeliveryState::Queued && tx.doors.is_open(door)) {
        tx.due_at(due);
    }
    tx.inserts.delivery(&delivery, tx.now, due, message.expires_at, owner.as_deref())?;
    if let Some(permit) = permit {
        stage_handoff(tx, permit, message.clone(), seq, delivery.clone(), 1);
    }
    Ok(delivery)
}

pub(super) fn lease_duration(tx: &Transaction<'_>) -> SignedDuration {
    SignedDuration::try_from(tx.config.lease).unwrap_or(SignedDuration::from_mins(1))
}

pub(super) fn half_lease_end(tx: &Transaction<'_>) -> Timestamp {
    tx.now.saturating_add(lease_duration(tx) / 2).unwrap_or(tx.now)
}

fn lease_end(tx: &Transaction<'_>) -> Timestamp {
    tx.now.saturating_add(lease_duration(tx)).unwrap_or(tx.now)
}

/// Renews the leases that this process still holds; returns until when each counts as fresh.
pub(super) fn renew(
    tx: &mut Transaction<'_>,
    leases: &[(DeliveryId, i64)],
) -> Result<HashMap<DeliveryId, Timestamp>, HubError> {
    let mut renewed = HashMap::new();
    for (id, fence) in leases {
        let kept = tx
            .db
            .prepare_cached("UPDATE deliveries SET due_at = ?3 WHERE id = ?1 AND fence = ?2 AND state = 1")?
            .execute(params![id.0, fence, lease_end(tx).as_microsecond()])?;
        if kept > 0 {
            renewed.insert(*id, half_lease_end(tx));
        }
    }
    Ok(renewed)
}

/// Leases due deliveries to the doors that are open here, up to their free slots.
///
/// Doors without a free slot are recorded: later submissions to such a door queue behind its earlier deliveries, and it
/// is polled again with the next transaction.
pub(crate) fn lease_due(tx: &mut Transaction<'_>) -> rusqlite::Result<()> {
    tx.next_due = Timestamp::MAX;
    for door in tx.doors.all_open() {
        loop {
            let Some(permit) = tx.doors.permit(door) else {
                tx.waiting.push(door);
                tx.due_at(tx.now);
                break;
            };
            let Some((message, seq, delivery, fence)) = lease_one(tx, door)? else {
                if let Some(due) = earliest_due(tx.db, door)? {
                    tx.due_at(due);
                }
                break;
            };
            stage_handoff(tx, permit, message, seq, delivery, fence);
        }
    }
    Ok(())
}

/// Returns the earliest due time of a door's deliveries, or `None` if none is pending.
fn earliest_due(db: &rusqlite::Connection, door: Door) -> rusqlite::Result<Option<Timestamp>> {
    db.prepare_cached(
        "SELECT due_at FROM deliveries WHERE door = ?1 AND (state < 2 OR state = 6) ORDER BY due_at LIMIT 1",
    )?
    .query_row([door.as_str()], |row| row.get(0).map(timestamp_from_micros))
    .optional()
}

/// Returns true if a delivery is due for one of these doors.
pub(crate) fn is_due(db: &rusqlite::Connection, doors: &[Door], now: Timestamp) -> Result<bool, HubError> {
    // One query covers all doors. Door names are constants of this program, so they need no escaping.
    let names: Vec<String> = doors.iter().map(|door| format!("'{}'", door.as_str())).collect();
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM deliveries WHERE door IN ({}) AND (state < 2 OR state = 6) AND due_at <= ?1)",
        names.join(", ")
    );
    Ok(db.prepare_cached(&sql)?.query_row([now.as_microsecond()], |row| row.get(0))?)
}

/// Returns true if a dead process holds a lease on a delivery of this door.
pub(crate) fn is_abandoned(db: &rusqlite::Connection, door: Door) -> Result<bool, HubError> {
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT owner FROM deliveries WHERE door = ?1 AND (state < 2 OR state = 6) AND state = 1 \
         AND owner IS NOT NULL",
    )?;
    let owners = statement.query_map([door.as_str()], |row| row.get::<_, String>(0))?;
    for owner in owners {
        if owner?.parse::<ProcessIdentity>().map_or(true, |owner| owner.has_exited()) {
            return Ok(true);
        }
    }
    Ok(false)
}

type LeasedRow = (Arc<Message>, i64, Delivery, i64);

fn lease_one(tx: &mut Transaction<'_>, door: Door) -> rusqlite::Result<Option<LeasedRow>> {
    let (id, fence, stored, mut delivery) = loop {
        let Some((id, fence, read)) = next_due(tx, door)? else { return Ok(None) };
        match read {
            Ok((stored, delivery)) => break (id, fence, stored, delivery),
            Err(error) => refuse_damaged(tx, id, &error)?,
        }
    };
    delivery.attempts = delivery.attempts.saturating_add(1);
    delivery.state = DeliveryState::InFlight;
    delivery.milestones.in_flight.get_or_insert(tx.now);
    let first = delivery.milestones.in_flight.map(Timestamp::as_microsecond);
    tx.db
        .prepare_cached(
            "UPDATE deliveries SET state = 1, attempts = ?2, fence = ?3, due_at = ?4, owner = ?5, in_flight_at = ?6 \
             WHERE id = ?1",
        )?
        .execute(params![
            id,
            delivery.attempts,
            fence,
            lease_end(tx).as_microsecond(),
            &*tx.doors.owner,
            first
        ])?;
    Ok(Some((Arc::new(stored.message), stored.seq, delivery, fence)))
}

/// Delivery number, fencing token of the next attempt, and both rows if they can be read.
type Due = (i64, i64, Result<(Stored, Delivery), HubError>);

/// Finds the delivery that has been due for the longest time.
///
/// Expired deliveries are left to housekeeping.
fn next_due(tx: &Transaction<'_>, door: Door) -> rusqlite::Result<Option<Due>> {
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, {DELIVERY_COLUMNS}, d.fence FROM deliveries d JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE d.door = ?1 AND (d.state < 2 OR d.state = 6) AND d.due_at <= ?2 \
         AND (d.expires_at IS NULL OR d.expires_at > ?2) ORDER BY d.due_at, d.id LIMIT 1"
    );
    let mut statement = tx.db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![door.as_str(), tx.now.as_microsecond()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    // An unreadable or maximal fence restarts at 1, because no process holds a lease on such a row.
    let fence =
        row.get::<_, i64>(MESSAGE_WIDTH + 13).ok().and_then(|fence| fence.checked_add(1)).unwrap_or(1);
    let read = Stored::read(row)
        .and_then(|stored| rows::delivery(row, MESSAGE_WIDTH, stored.message.id).map(|d| (stored, d)));
    Ok(Some((row.get(MESSAGE_WIDTH)?, fence, read)))
}
