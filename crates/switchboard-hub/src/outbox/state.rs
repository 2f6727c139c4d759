//! How a delivery gets from one state to the next.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use switchboard_core::{
    AgentId, Delivery, DeliveryId, DeliveryState, Door, MessageId, Outcome, Route, after_attempt,
};
use switchboard_sys::owner::Owner;

use super::claim::lease;
use super::returned;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::maintenance;
use crate::owed;
use crate::reads;
use crate::store::rows::{self, DELIVERY_COLUMNS, SPREAD, state_number};
use crate::store::writer::Work;

/// How the note ends on a delivery that was set aside because its message is damaged.
const SEE_DOCTOR: &str = "; see `switchboard doctor`";

/// Why a delivery is retried whose door dropped it.
pub(super) const NO_OUTCOME: &str = "the door did not report an outcome";

/// A damaged message stops at itself: it is set aside and its neighbours go on.
pub(super) fn set_aside(tx: &Work<'_>, id: i64, error: &HubError) -> rusqlite::Result<()> {
    let note = format!("{error}{SEE_DOCTOR}");
    tx.db
        .prepare_cached("UPDATE deliveries SET state = 5, note = ?2, ended_at = ?3 WHERE id = ?1")?
        .execute(params![id, note, tx.now.as_microsecond()])?;
    Ok(())
}

/// Queues again what was set aside, once its message can be read.
pub(crate) fn take_back(tx: &Work<'_>, seq: i64) -> Result<(), HubError> {
    let [first, end] = rows::delivery_ids(seq);
    tx.db.execute(
        "UPDATE deliveries SET state = 0, note = NULL, ended_at = NULL, owner = NULL, due_at = ?3 \
         WHERE id >= ?1 AND id < ?2 AND state = 5 AND substr(note, -length(?4)) = ?4",
        params![first, end, tx.now.as_microsecond(), SEE_DOCTOR],
    )?;
    Ok(())
}

/// Writes down that a delivery was made, unless somebody else holds it by now. What has changed of it since it was handed
/// over is nothing as long as its fence is in force, so that it need not be read again.
pub(super) fn delivered(
    tx: &mut Work<'_>,
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
    tx.after.events.push(HubEvent::Delivery(Box::new(delivery)));
    Ok(Some(DeliveryState::Delivered))
}

/// Writes down how an attempt ended, unless somebody else holds the delivery by now.
pub(super) fn settle(
    tx: &mut Work<'_>,
    id: DeliveryId,
    fence: i64,
    outcome: &Outcome,
) -> Result<Option<DeliveryState>, HubError> {
    let found = read_delivery(tx, id, Some(fence))?;
    let Some((message, accepted_at, expires_at, mut delivery)) = found else { return Ok(None) };
    let jitter = fastrand::f64();
    let retry_as = match outcome {
        // The first delivery of a peer waits for no other: nothing would hurry it.
        Outcome::Behind { reason } if is_first_unsent(tx, &delivery)? => {
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
        Outcome::Refused { reason } | Outcome::Unreachable { reason } | Outcome::Behind { reason } => {
            Some(reason.clone())
        }
    };
    delivery.message = message;
    if matches!(outcome, Outcome::Behind { .. }) {
        delivery.attempts = delivery.attempts.saturating_sub(1);
        tx.db
            .prepare_cached("UPDATE deliveries SET attempts = ?2 WHERE id = ?1")?
            .execute(params![id.0, delivery.attempts])?;
    }
    if *outcome == Outcome::Shown {
        put_state(tx, &mut delivery, DeliveryState::Delivered, None)?;
    }
    if let (DeliveryState::Refused, Some(reason)) = (state, &note) {
        returned::tell(tx, &delivery, reason)?;
    }
    put_state(tx, &mut delivery, state, note)?;
    Ok(Some(state))
}

/// True if no earlier delivery to the same peer is unsent.
fn is_first_unsent(tx: &Work<'_>, delivery: &Delivery) -> Result<bool, HubError> {
    let first = reads::first_unsent(tx.db, &delivery.agent)?;
    Ok(first.is_none_or(|seq| seq >= delivery.id.0 / SPREAD))
}

/// Moves a delivery to a state, writes the time of it, and tells subscribers.
pub(crate) fn put_state(
    tx: &mut Work<'_>,
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
        // It keeps its place before what was queued after it.
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
    owed::note(tx, delivery, state)?;
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
    tx.after.events.push(HubEvent::Delivery(Box::new(delivery.clone())));
    Ok(())
}

type Found = (MessageId, Timestamp, Option<Timestamp>, Delivery);

/// A delivery with what is needed of its message; with a fence, only while that is in force.
fn read_delivery(tx: &Work<'_>, id: DeliveryId, fence: Option<i64>) -> Result<Option<Found>, HubError> {
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
    let accepted = switchboard_sys::clock::from_micros(row.get(1)?);
    let expires = row.get::<_, Option<i64>>(2)?.map(switchboard_sys::clock::from_micros);
    Ok(Some((message, accepted, expires, rows::delivery(row, 5, message)?)))
}

/// Makes deliveries due at once whose owner is gone: a process that was killed holds no lease. They are due since they
/// were queued, so that they come before what was queued after them.
pub(crate) fn release_gone(tx: &mut Work<'_>) -> Result<(), HubError> {
    let owners: Vec<String> = {
        let mut statement =
            tx.db.prepare_cached(
                "SELECT DISTINCT owner FROM deliveries WHERE (state < 2 OR state = 6) AND state = 1 AND owner IS NOT NULL",
            )?;
        let owners = statement.query_map([], |row| row.get(0))?;
        owners.collect::<rusqlite::Result<_>>()?
    };
    for owner in owners {
        let gone = owner.parse::<Owner>().map_or(true, |owner| owner.is_gone());
        if gone {
            tx.db.execute(
                "UPDATE deliveries SET due_at = min(queued_at, ?2) WHERE (state < 2 OR state = 6) AND state = 1 AND owner = ?1",
                params![owner, tx.now.as_microsecond()],
            )?;
        }
    }
    Ok(())
}

/// Most deliveries that are hurried at once: as many as the door takes on for one peer. The others come behind them.
const HURRIED: i64 = 64;

/// Makes the first of the failed deliveries to a peer due at once.
pub(crate) fn retry_peer_now(tx: &mut Work<'_>, agent: &AgentId) -> Result<(), HubError> {
    tx.db
        .prepare_cached(
            "UPDATE deliveries SET due_at = ?2 WHERE id IN (SELECT id FROM deliveries WHERE agent = ?1 \
             AND door = 'swarm' AND (state < 2 OR state = 6) AND state = 6 ORDER BY id LIMIT ?3) AND due_at > ?2",
        )?
        .execute(params![agent.to_string(), tx.now.as_microsecond(), HURRIED])?;
    Ok(())
}

/// Makes what each peer has to get before anything else due at once, where it failed.
pub(crate) fn retry_first_deliveries(tx: &mut Work<'_>) -> Result<(), HubError> {
    tx.db
        .prepare_cached(
            "UPDATE deliveries SET due_at = ?1 WHERE id IN (SELECT min(id) FROM deliveries \
             WHERE door = 'swarm' AND (state < 2 OR state = 6) GROUP BY agent) AND state = 6 AND due_at > ?1",
        )?
        .execute([tx.now.as_microsecond()])?;
    Ok(())
}

/// Brings times back into reach that lie further ahead than any of ours: the clock was set back.
pub(crate) fn bound_times(tx: &mut Work<'_>) -> Result<(), HubError> {
    let ahead = |by| tx.now.saturating_add(by).unwrap_or(tx.now).as_microsecond();
    let bounds = [
        (DeliveryState::Queued, tx.now.as_microsecond()),
        (DeliveryState::InFlight, ahead(lease(tx))),
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

/// Under this topic stand the mailbox deliveries that have expired and whose files are not in the archive yet: any process
/// ends a delivery, and the workspace door of any process moves its file.
pub(crate) const UNFILED: &str = "unfiled";

/// The note of an expired delivery.
pub(crate) fn unfiled_key(agent: &AgentId, message: MessageId) -> String {
    format!("{message} {agent}")
}

/// The expired deliveries whose files are not in the archive yet.
pub(crate) fn expired_unarchived(
    db: &Connection,
    most: usize,
) -> Result<Vec<(AgentId, MessageId)>, HubError> {
    let mut statement =
        db.prepare_cached("SELECT key FROM notes WHERE door = ?1 AND topic = ?2 ORDER BY key LIMIT ?3")?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let keys = statement.query_map(params![Door::Workspace.as_str(), UNFILED, most], |row| row.get(0))?;
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

/// Ends deliveries whose message lost its use before it was taken. At most `most` at a time.
pub(crate) fn expire_due(tx: &mut Work<'_>, most: usize) -> Result<Vec<Delivery>, HubError> {
    let sql = format!(
        "SELECT m.id, {DELIVERY_COLUMNS} FROM deliveries d JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE d.expires_at IS NOT NULL AND d.expires_at <= ?1 AND (d.state < 4 OR d.state = 6) LIMIT ?2"
    );
    let (mut expired, mut damaged) = (Vec::new(), Vec::new());
    {
        let mut statement = tx.db.prepare_cached(&sql)?;
        // More than SQLite can count is as good as no limit.
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
        set_aside(tx, id, &error)?;
    }
    for delivery in &mut expired {
        put_state(tx, delivery, DeliveryState::Expired, Some("it was not taken before it expired".into()))?;
        if matches!(delivery.route, Route::Mailbox { .. }) {
            let key = unfiled_key(&delivery.agent, delivery.message);
            maintenance::put_note(tx, Door::Workspace, UNFILED, &key, Some(""))?;
        }
    }
    // Others may have waited behind them.
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
