//! State transitions of deliveries: outcomes, retries, redelivery and expiry.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use switchboard_core::{
    AgentId, Delivery, DeliveryId, DeliveryState, Door, MessageId, Outcome, Route, after_attempt,
};
use switchboard_sys::process_identity::ProcessIdentity;

use super::forward_loops;
use super::lease::lease_duration;
use crate::delivery::remote_receipts;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::journal::maintenance;
use crate::journal::reads;
use crate::store::rows::{self, DELIVERY_COLUMNS, SPREAD, state_number};
use crate::store::writer::Transaction;

/// Suffix of the note on a delivery whose message is damaged.
const SEE_DOCTOR: &str = "; see `switchboard doctor`";

/// Reason for the retry of a delivery that its door dropped without a report.
pub(super) const NO_OUTCOME: &str = "the door did not report an outcome";

/// Refuses the delivery of a damaged message, so that the deliveries behind it can proceed.
pub(super) fn refuse_damaged(tx: &Transaction<'_>, id: i64, error: &HubError) -> rusqlite::Result<()> {
    let note = format!("{error}{SEE_DOCTOR}");
    tx.db
        .prepare_cached("UPDATE deliveries SET state = 5, note = ?2, ended_at = ?3 WHERE id = ?1")?
        .execute(params![id, note, tx.now.as_microsecond()])?;
    Ok(())
}

/// Requeues the deliveries of a damaged message after the message was repaired.
pub(crate) fn requeue_repaired(tx: &Transaction<'_>, seq: i64) -> Result<(), HubError> {
    let [first, end] = rows::delivery_ids(seq);
    tx.db.execute(
        "UPDATE deliveries SET state = 0, note = NULL, ended_at = NULL, owner = NULL, due_at = ?3 \
         WHERE id >= ?1 AND id < ?2 AND state = 5 AND substr(note, -length(?4)) = ?4",
        params![first, end, tx.now.as_microsecond(), SEE_DOCTOR],
    )?;
    Ok(())
}

/// Records a successful delivery, unless another process has leased it in the meantime.
///
/// While the fencing token is valid, the delivery has not changed since it was leased, so it is not read again.
pub(super) fn record_delivered(
    tx: &mut Transaction<'_>,
    mut delivery: Delivery,
    fence: i64,
) -> Result<Option<DeliveryState>, HubError> {
    let written = tx
        .db
        .prepare_cached(
            "UPDATE deliveries SET state = 2, due_at = ?3, note = NULL, owner = NULL, \
             delivered_at = coalesce(delivered_at, ?3) WHERE id = ?1 AND fence = ?2 AND state = 1",
        )?
        .execute(params![delivery.id.0, fence, tx.now.as_microsecond()])?;
    if written == 0 {
        return Ok(None);
    }
    delivery.state = DeliveryState::Delivered;
    delivery.note = None;
    delivery.milestones.delivered.get_or_insert(tx.now);
    tx.post_commit.events.push(HubEvent::Delivery(Box::new(delivery)));
    Ok(Some(DeliveryState::Delivered))
}

/// Records the outcome of an attempt, unless another process has leased the delivery in the meantime.
pub(super) fn record_outcome(
    tx: &mut Transaction<'_>,
    id: DeliveryId,
    fence: i64,
    outcome: &Outcome,
) -> Result<Option<DeliveryState>, HubError> {
    let found = read_delivery(tx, id, Some(fence))?;
    let Some((message, accepted_at, expires_at, mut delivery)) = found else { return Ok(None) };
    let jitter = fastrand::f64();
    let retry_as = match outcome {
        // The first delivery to a peer waits for no other delivery, so no success of another one would trigger its
        // retry.
        Outcome::Blocked { reason } if is_first_unsent(tx, &delivery)? => {
            &Outcome::Unreachable { reason: reason.clone() }
        }
        outcome => outcome,
    };
    let state =
        after_attempt(retry_as, delivery.attempts, accepted_at, expires_at, tx.now, jitter, tx.config.retry);
    let note = match outcome {
        Outcome::Delivered | Outcome::Shown => None,
        Outcome::Released => match state {
            DeliveryState::Queued => None,
            _ => Some(NO_OUTCOME.to_owned()),
        },
        Outcome::Refused { reason } | Outcome::Unreachable { reason } | Outcome::Blocked { reason } => {
            Some(reason.clone())
        }
    };
    delivery.message = message;
    if matches!(outcome, Outcome::Blocked { .. }) {
        delivery.attempts = delivery.attempts.saturating_sub(1);
        tx.db
            .prepare_cached("UPDATE deliveries SET attempts = ?2 WHERE id = ?1")?
            .execute(params![id.0, delivery.attempts])?;
    }
    if *outcome == Outcome::Shown {
        put_state(tx, &mut delivery, DeliveryState::Delivered, None)?;
    }
    if let (DeliveryState::Refused, Some(reason)) = (state, &note) {
        forward_loops::notify_refused(tx, &delivery, reason)?;
    }
    put_state(tx, &mut delivery, state, note)?;
    Ok(Some(state))
}

/// Returns true if no earlier delivery to the same peer is unsent.
fn is_first_unsent(tx: &Transaction<'_>, delivery: &Delivery) -> Result<bool, HubError> {
    let first = reads::first_unsent(tx.db, &delivery.agent)?;
    Ok(first.is_none_or(|seq| seq >= delivery.id.0 / SPREAD))
}

/// Moves a delivery to a state, records the time, and notifies subscribers.
pub(crate) fn put_state(
    tx: &mut Transaction<'_>,
    delivery: &mut Delivery,
    state: DeliveryState,
    note: Option<String>,
) -> Result<(), HubError> {
    let column = match state {
        DeliveryState::Queued | DeliveryState::Failed { .. } => "queued_at = queued_at",
        DeliveryState::InFlight => "in_flight_at = coalesce(in_flight_at, ?4)",
        DeliveryState::Delivered => "delivered_at = coalesce(delivered_at, ?4)",
        DeliveryState::Seen => "seen_at = coalesce(seen_at, ?4)",
        DeliveryState::Acknowledged => "acknowledged_at = coalesce(acknowledged_at, ?4)",
        DeliveryState::Refused | DeliveryState::Expired => "ended_at = coalesce(ended_at, ?4)",
    };
    let due = match state {
        DeliveryState::Failed { retry_at } => retry_at,
        // A requeued delivery keeps its original time, so that it stays ahead of later ones.
        DeliveryState::Queued => delivery.milestones.queued.map_or(tx.now, |queued| queued.min(tx.now)),
        _ => tx.now,
    };
    let sql = format!(
        "UPDATE deliveries SET state = ?2, due_at = ?3, note = ?5, owner = NULL, {column} WHERE id = ?1"
    );
    tx.db.prepare_cached(&sql)?.execute(params![
        delivery.id.0,
        state_number(state),
        due.as_microsecond(),
        tx.now.as_microsecond(),
        note
    ])?;
    if state.is_pending() {
        tx.due_at(due);
    }
    remote_receipts::record(tx, delivery, state)?;
    delivery.state = state;
    delivery.note = note;
    let times = &mut delivery.milestones;
    match state {
        DeliveryState::Queued | DeliveryState::Failed { .. } => {}
        DeliveryState::InFlight => drop(times.in_flight.get_or_insert(tx.now)),
        DeliveryState::Delivered => drop(times.delivered.get_or_insert(tx.now)),
        DeliveryState::Seen => drop(times.seen.get_or_insert(tx.now)),
        DeliveryState::Acknowledged => drop(times.acknowledged.get_or_insert(tx.now)),
        DeliveryState::Refused | DeliveryState::Expired => drop(times.ended.get_or_insert(tx.now)),
    }
    tx.post_commit.events.push(HubEvent::Delivery(Box::new(delivery.clone())));
    Ok(())
}

type Found = (MessageId, Timestamp, Option<Timestamp>, Delivery);

/// Reads a delivery with the required fields of its message.
///
/// Given a fencing token, returns the delivery only while the token is valid.
fn read_delivery(
    tx: &Transaction<'_>,
    id: DeliveryId,
    fence: Option<i64>,
) -> Result<Option<Found>, HubError> {
    let sql = format!(
        "SELECT m.id, m.accepted_at, m.expires_at, d.state, d.fence, {DELIVERY_COLUMNS} FROM deliveries d \
         JOIN messages m ON m.seq = d.id / {SPREAD} WHERE d.id = ?1"
    );
    let mut statement = tx.db.prepare_cached(&sql)?;
    let mut rows = statement.query([id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    if let Some(fence) = fence {
        let (state, current): (i64, i64) = (row.get(3)?, row.get(4)?);
        if current != fence || state != state_number(DeliveryState::InFlight) {
            return Ok(None);
        }
    }
    let message = MessageId::from_bytes(row.get(0)?);
    let accepted = switchboard_sys::clock::timestamp_from_micros(row.get(1)?);
    let expires = row.get::<_, Option<i64>>(2)?.map(switchboard_sys::clock::timestamp_from_micros);
    Ok(Some((message, accepted, expires, rows::delivery(row, 5, message)?)))
}

/// Releases the leases of dead processes, so that their deliveries are redelivered.
///
/// The deliveries are due from the time they were queued, so they come before later ones.
pub(crate) fn release_orphaned(tx: &mut Transaction<'_>) -> Result<(), HubError> {
    let owners: Vec<String> = {
        let mut statement =
            tx.db.prepare_cached(
                "SELECT DISTINCT owner FROM deliveries WHERE (state < 2 OR state = 6) AND state = 1 AND owner IS NOT NULL",
            )?;
        let owners = statement.query_map([], |row| row.get(0))?;
        owners.collect::<rusqlite::Result<_>>()?
    };
    for owner in owners {
        let gone = owner.parse::<ProcessIdentity>().map_or(true, |owner| owner.has_exited());
        if gone {
            tx.db.execute(
                "UPDATE deliveries SET due_at = min(queued_at, ?2) WHERE (state < 2 OR state = 6) AND state = 1 AND owner = ?1",
                params![owner, tx.now.as_microsecond()],
            )?;
        }
    }
    Ok(())
}

/// Maximum number of deliveries that are retried at once.
///
/// The door handles as many for one peer.
const RETRIES_AT_ONCE: i64 = 64;

/// Makes the first failed deliveries to a peer due at once, without backoff.
pub(crate) fn retry_peer_now(tx: &mut Transaction<'_>, agent: &AgentId) -> Result<(), HubError> {
    tx.db
        .prepare_cached(
            "UPDATE deliveries SET due_at = ?2 WHERE id IN (SELECT id FROM deliveries WHERE agent = ?1 \
             AND door = 'swarm' AND (state < 2 OR state = 6) AND state = 6 ORDER BY id LIMIT ?3) AND due_at > ?2",
        )?
        .execute(params![agent.to_string(), tx.now.as_microsecond(), RETRIES_AT_ONCE])?;
    Ok(())
}

/// Makes the first pending delivery of each peer due at once, if it failed.
pub(crate) fn retry_first_deliveries(tx: &mut Transaction<'_>) -> Result<(), HubError> {
    tx.db
        .prepare_cached(
            "UPDATE deliveries SET due_at = ?1 WHERE id IN (SELECT min(id) FROM deliveries \
             WHERE door = 'swarm' AND (state < 2 OR state = 6) GROUP BY agent) AND state = 6 AND due_at > ?1",
        )?
        .execute([tx.now.as_microsecond()])?;
    Ok(())
}

/// Clamps due times that are implausibly far ahead, because the clock was set back.
///
/// No backoff or lease of this hub is that long.
pub(crate) fn clamp_future_times(tx: &mut Transaction<'_>) -> Result<(), HubError> {
    let ahead = |by| tx.now.saturating_add(by).unwrap_or(tx.now).as_microsecond();
    let bounds = [
        (DeliveryState::Queued, tx.now.as_microsecond()),
        (DeliveryState::InFlight, ahead(lease_duration(tx))),
        (DeliveryState::Failed { retry_at: tx.now }, ahead(tx.config.retry.longest)),
    ];
    for (state, latest) in bounds {
        tx.db
            .prepare_cached(
                "UPDATE deliveries SET due_at = ?2 WHERE (state < 2 OR state = 6) AND state = ?1 AND due_at > ?2",
            )?
            .execute([state_number(state), latest])?;
    }
    Ok(())
}

/// Topic of notes on expired mailbox deliveries whose files are not archived yet.
///
/// Any process may expire a delivery, and the workspace door of any process moves its file.
pub(crate) const UNARCHIVED: &str = "unfiled";

/// Returns the note key of an expired delivery.
pub(crate) fn unarchived_key(agent: &AgentId, message: MessageId) -> String {
    format!("{message} {agent}")
}

/// Lists expired deliveries whose files are not archived yet.
pub(crate) fn expired_unarchived(
    db: &Connection,
    most: usize,
) -> Result<Vec<(AgentId, MessageId)>, HubError> {
    let mut statement =
        db.prepare_cached("SELECT key FROM notes WHERE door = ?1 AND topic = ?2 ORDER BY key LIMIT ?3")?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let keys = statement.query_map(params![Door::Workspace.as_str(), UNARCHIVED, most], |row| row.get(0))?;
    let mut unfiled = Vec::new();
    for key in keys {
        let key: String = key?;
        if let Some((message, agent)) = key.split_once(' ')
            && let (Ok(message), Ok(agent)) = (message.parse(), agent.parse())
        {
            unfiled.push((agent, message));
        }
    }
    Ok(unfiled)
}

/// Expires deliveries whose message expired before it was received, at most `most` at a time.
pub(crate) fn expire_due(tx: &mut Transaction<'_>, most: usize) -> Result<Vec<Delivery>, HubError> {
    let sql = format!(
        "SELECT m.id, {DELIVERY_COLUMNS} FROM deliveries d JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE d.expires_at IS NOT NULL AND d.expires_at <= ?1 AND (d.state < 4 OR d.state = 6) LIMIT ?2"
    );
    let (mut expired, mut damaged) = (Vec::new(), Vec::new());
    {
        let mut statement = tx.db.prepare_cached(&sql)?;
        // A limit that exceeds SQLite's integers is equivalent to no limit.
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![tx.now.as_microsecond(), most])?;
        while let Some(row) = rows.next()? {
            let delivery = row
                .get(0)
                .map_err(HubError::from)
                .and_then(|id| rows::delivery(row, 1, MessageId::from_bytes(id)));
            match delivery {
                Ok(delivery) => expired.push(delivery),
                Err(error) => damaged.push((row.get(1)?, error)),
            }
        }
    }
    for (id, error) in damaged {
        refuse_damaged(tx, id, &error)?;
    }
    for delivery in &mut expired {
        put_state(tx, delivery, DeliveryState::Expired, Some("it expired before delivery".into()))?;
        if matches!(delivery.route, Route::Mailbox { .. }) {
            let key = unarchived_key(&delivery.agent, delivery.message);
            maintenance::put_note(tx, Door::Workspace, UNARCHIVED, &key, Some(""))?;
        }
    }
    // Later deliveries to the same peers may have waited behind the expired ones.
    let peers: BTreeSet<&AgentId> = expired
        .iter()
        .filter(|delivery| delivery.route.door() == Door::Swarm)
        .map(|delivery| &delivery.agent)
        .collect();
    for peer in peers {
        retry_peer_now(tx, peer)?;
    }
    Ok(expired)
}
