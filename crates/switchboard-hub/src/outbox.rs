//! The outbox: persisted deliveries, leased to the door that works them off.
//!
//! queued → in flight (leased, fenced) → delivered, refused, expired, or failed until its retry is due.
//! A lease that runs out, or whose owner is gone, makes its delivery due again; the fence keeps the
//! late answer of the former owner from counting.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rusqlite::params;
use switchboard_core::{
    Delivery, DeliveryId, DeliveryState, Door, Message, MessageId, Outcome, Planned, after_attempt,
};
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::owner::Owner;
use crate::store::rows::{
    self, DELIVERY_COLUMNS, MESSAGE_COLUMNS, MESSAGE_WIDTH, SPREAD, Stored, state_number,
};
use crate::store::writer::{Pending, Work, Writer};

/// Most deliveries that lie ready for a door to take. The others wait in the database.
const IN_FLIGHT: usize = 256;

/// How the note ends on a delivery that was set aside because its message is damaged.
const SEE_DOCTOR: &str = "; see `switchboard doctor`";

/// The doors that are open in this process.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    open: Arc<Mutex<HashMap<Door, mpsc::Sender<Handoff>>>>,
    owner: Arc<str>,
    clock: Clock,
    /// The writer, for reports; set once it runs.
    writer: Arc<std::sync::OnceLock<Writer>>,
}

/// The receiving end of one door's deliveries.
#[derive(Debug)]
pub struct Outbound {
    queue: mpsc::Receiver<Handoff>,
    /// Taken from the queue and not given out yet, so that nothing is lost with a dropped future.
    taken: Vec<Handoff>,
    doors: Doors,
}

/// One delivery, handed to its door. Dropped without a report it counts as "unreachable, retry".
#[derive(Debug)]
pub struct Handoff {
    /// What is to be delivered.
    pub message: Arc<Message>,
    /// Its place in the journal.
    pub seq: i64,
    /// To whom and by which way.
    pub delivery: Delivery,
    claim: Option<Claim>,
}

/// The right to report on a delivery.
#[derive(Debug)]
struct Claim {
    id: DeliveryId,
    fence: i64,
    /// When half of the lease is over: from then on it is looked at again before the work begins.
    fresh_until: Timestamp,
    writer: Writer,
}

/// A handoff that waits for its transaction to be on disk.
pub(crate) struct Ready {
    place: mpsc::OwnedPermit<Handoff>,
    handoff: Handoff,
    /// Joined to the handoff only now: one whose transaction failed has nothing to report on.
    claim: Option<Claim>,
}

impl Doors {
    pub(crate) fn new(clock: Clock) -> Self {
        let owner = Owner::this_process().to_string().into();
        Self { open: Arc::default(), owner, clock, writer: Arc::default() }
    }

    /// Lets reports reach the writer. The writer keeps the doors alive and the doors the writer, so
    /// [`Doors::close`] has to be called for either to end.
    pub(crate) fn attach(&self, writer: Writer) {
        let _ = self.writer.set(writer);
    }

    /// Opens a door: from now on this process works off its deliveries.
    pub(crate) fn open(&self, door: Door) -> Outbound {
        let (sender, queue) = mpsc::channel(IN_FLIGHT);
        self.open.lock().insert(door, sender);
        Outbound { queue, taken: Vec::new(), doors: self.clone() }
    }

    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }

    pub(crate) fn is_open(&self, door: Door) -> bool {
        self.open.lock().get(&door).is_some_and(|sender| !sender.is_closed())
    }

    pub(crate) fn all_open(&self) -> Vec<Door> {
        self.open.lock().keys().copied().collect()
    }

    /// A place in the door's queue, where it is open and has one.
    fn place(&self, door: Door) -> Option<mpsc::OwnedPermit<Handoff>> {
        let sender = self.open.lock().get(&door)?.clone();
        sender.try_reserve_owned().ok()
    }
}

impl Outbound {
    /// The next deliveries, at least one and at most `most`; none once the hub shuts down.
    pub async fn next(&mut self, most: usize) -> Vec<Handoff> {
        loop {
            if self.taken.is_empty() && self.queue.recv_many(&mut self.taken, most).await == 0 {
                return Vec::new();
            }
            self.keep_current().await;
            let most = most.min(self.taken.len());
            let handoffs: Vec<_> = self.taken.drain(..most).collect();
            if !handoffs.is_empty() {
                return handoffs;
            }
        }
    }

    /// Extends the leases of what has waited for long, and drops what somebody else has taken over.
    async fn keep_current(&mut self) {
        let now = self.doors.clock.now();
        let claims = self.taken.iter().filter_map(|handoff| handoff.claim.as_ref());
        let old: Vec<_> =
            claims.filter(|claim| claim.fresh_until <= now).map(|claim| (claim.id, claim.fence)).collect();
        let Some(writer) = self.doors.writer.get().filter(|_| !old.is_empty()) else { return };
        let asked = old.clone();
        // A hub that has closed renews nothing; the report of what is done now will say so.
        let Ok(renewed) = writer.write(move |tx| renew(tx, &asked)).await else { return };
        self.taken.retain_mut(|handoff| {
            let Some(claim) = &mut handoff.claim else { return true };
            let key = (claim.id, claim.fence);
            if !old.contains(&key) {
                return true;
            }
            match renewed.get(&key.0) {
                Some(fresh_until) => claim.fresh_until = *fresh_until,
                // Not ours any more, so there is nothing to report.
                None => handoff.claim = None,
            }
            handoff.claim.is_some()
        });
    }
}

impl Handoff {
    /// Says how the attempt ended; returns once that is on disk.
    ///
    /// The answer is the state that follows, or nothing where another process has taken the delivery
    /// over in the meantime and this report no longer counts.
    pub async fn report(self, outcome: Outcome) -> Result<Option<DeliveryState>, HubError> {
        self.queue_report(outcome).await?.result().await
    }

    /// Says how many attempts ended, with few waits for the disk.
    pub async fn report_all(reports: Vec<(Self, Outcome)>) -> Vec<Result<Option<DeliveryState>, HubError>> {
        let mut pending = Vec::with_capacity(reports.len());
        for (handoff, outcome) in reports {
            pending.push(handoff.queue_report(outcome).await);
        }
        let mut answers = Vec::with_capacity(pending.len());
        for pending in pending {
            answers.push(match pending {
                Ok(pending) => pending.result().await,
                Err(error) => Err(error),
            });
        }
        answers
    }

    async fn queue_report(mut self, outcome: Outcome) -> Result<Pending<Option<DeliveryState>>, HubError> {
        let claim = self.claim.take().ok_or(HubError::Closed)?;
        let Claim { id, fence, ref writer, .. } = claim;
        writer.queue(move |tx| settle(tx, id, fence, &outcome)).await
    }
}

impl Drop for Handoff {
    fn drop(&mut self) {
        if let Some(Claim { id, fence, writer, .. }) = self.claim.take() {
            let outcome = Outcome::Unreachable { reason: "the door did not report an outcome".into() };
            writer.post(move |tx| settle(tx, id, fence, &outcome).map(|_| ()));
        }
    }
}

impl Ready {
    pub(crate) fn send(self) {
        let Self { place, mut handoff, claim } = self;
        handoff.claim = claim;
        place.send(handoff);
    }
}

/// Writes one planned delivery, and hands it over where its door is open here and has a place.
pub(crate) fn enqueue(
    tx: &mut Work<'_>,
    message: &Arc<Message>,
    seq: i64,
    number: usize,
    planned: Planned,
    decided: Option<(DeliveryState, String)>,
) -> Result<Delivery, HubError> {
    let id = DeliveryId(seq * SPREAD + i64::try_from(number).unwrap_or(SPREAD - 1));
    let Planned { agent, route, in_place } = planned;
    let door = route.door();
    let at_once = !in_place && decided.is_none() && !tx.waiting.contains(&door);
    let place = if at_once { tx.doors.place(door) } else { None };
    if at_once && place.is_none() {
        tx.waiting.push(door);
    }
    let (state, note) = match decided {
        Some((state, note)) => (state, Some(note)),
        None if in_place => (DeliveryState::Delivered, None),
        None if place.is_some() => (DeliveryState::InFlight, None),
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
    let micros = |time: Option<Timestamp>| time.map(Timestamp::as_microsecond);
    tx.db
        .prepare_cached(
            "INSERT INTO deliveries (id, agent, door, route, state, attempts, fence, due_at, expires_at, owner, \
             note, queued_at, in_flight_at, delivered_at, seen_at, acknowledged_at, ended_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            id.0,
            delivery.agent.to_string(),
            door.as_str(),
            rows::json(&delivery.route),
            state_number(state),
            delivery.attempts,
            due.as_microsecond(),
            micros(message.expires_at),
            owner.as_deref(),
            delivery.note,
            tx.now.as_microsecond(),
            micros(delivery.milestones.in_flight),
            micros(delivery.milestones.delivered),
            micros(delivery.milestones.seen),
            micros(delivery.milestones.acknowledged),
            micros(delivery.milestones.ended),
        ])?;
    if let Some(place) = place {
        hand_over(tx, place, message.clone(), seq, delivery.clone(), 1);
    }
    Ok(delivery)
}

fn hand_over(
    tx: &mut Work<'_>,
    place: mpsc::OwnedPermit<Handoff>,
    message: Arc<Message>,
    seq: i64,
    delivery: Delivery,
    fence: i64,
) {
    let fresh_until = half_lease(tx);
    let claim = |writer: &Writer| Claim { id: delivery.id, fence, fresh_until, writer: writer.clone() };
    let claim = tx.doors.writer.get().map(claim);
    tx.after.handoffs.push(Ready { place, handoff: Handoff { message, seq, delivery, claim: None }, claim });
}

fn lease(tx: &Work<'_>) -> SignedDuration {
    SignedDuration::try_from(tx.config.lease).unwrap_or(SignedDuration::from_mins(1))
}

fn half_lease(tx: &Work<'_>) -> Timestamp {
    tx.now.saturating_add(lease(tx) / 2).unwrap_or(tx.now)
}

fn lease_end(tx: &Work<'_>) -> Timestamp {
    tx.now.saturating_add(lease(tx)).unwrap_or(tx.now)
}

/// Begins the lease anew for those that are still ours; returns until when each counts as fresh.
fn renew(
    tx: &mut Work<'_>,
    claims: &[(DeliveryId, i64)],
) -> Result<HashMap<DeliveryId, Timestamp>, HubError> {
    let mut renewed = HashMap::new();
    for (id, fence) in claims {
        let kept = tx
            .db
            .prepare_cached("UPDATE deliveries SET due_at = ?3 WHERE id = ?1 AND fence = ?2 AND state = 1")?
            .execute(params![id.0, fence, lease_end(tx).as_microsecond()])?;
        if kept > 0 {
            renewed.insert(*id, half_lease(tx));
        }
    }
    Ok(renewed)
}

/// Hands over what is due for the doors that are open here, as far as they have places.
///
/// The doors that had none are noted: what is submitted to them now has to wait behind the others.
pub(crate) fn claim_due(tx: &mut Work<'_>) -> rusqlite::Result<()> {
    for door in tx.doors.all_open() {
        loop {
            let Some(place) = tx.doors.place(door) else {
                tx.waiting.push(door);
                break;
            };
            let Some((message, seq, delivery, fence)) = claim_one(tx, door)? else { break };
            hand_over(tx, place, message, seq, delivery, fence);
        }
    }
    Ok(())
}

/// Whether something is due for one of these doors.
pub(crate) fn is_due(db: &rusqlite::Connection, doors: &[Door], now: Timestamp) -> Result<bool, HubError> {
    for door in doors {
        let due: bool = db
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM deliveries WHERE door = ?1 AND state IN (0, 1, 6) AND due_at <= ?2)",
            )?
            .query_row(params![door.as_str(), now.as_microsecond()], |row| row.get(0))?;
        if due {
            return Ok(true);
        }
    }
    Ok(false)
}

type Claimed = (Arc<Message>, i64, Delivery, i64);

fn claim_one(tx: &mut Work<'_>, door: Door) -> rusqlite::Result<Option<Claimed>> {
    let (id, fence, stored, mut delivery) = loop {
        let (id, fence, read) = match next_due(tx, door)? {
            Some(due) => due,
            None => return Ok(None),
        };
        match read {
            Ok((stored, delivery)) => break (id, fence, stored, delivery),
            Err(error) => set_aside(tx, id, &error)?,
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

/// A delivery's number, the fence of its next attempt, and both rows, as far as they can be read.
type Due = (i64, i64, Result<(Stored, Delivery), HubError>);

/// What has been due for the longest. What has expired is left to housekeeping.
fn next_due(tx: &Work<'_>, door: Door) -> rusqlite::Result<Option<Due>> {
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, {DELIVERY_COLUMNS}, d.fence FROM deliveries d JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE d.door = ?1 AND d.state IN (0, 1, 6) AND d.due_at <= ?2 \
         AND (d.expires_at IS NULL OR d.expires_at > ?2) ORDER BY d.due_at, d.id LIMIT 1"
    );
    let mut statement = tx.db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![door.as_str(), tx.now.as_microsecond()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    // A fence that cannot be read, or not be raised, begins anew: nobody holds a claim on such a row.
    let fence =
        row.get::<_, i64>(MESSAGE_WIDTH + 13).ok().and_then(|fence| fence.checked_add(1)).unwrap_or(1);
    let read = Stored::read(row)
        .and_then(|stored| rows::delivery(row, MESSAGE_WIDTH, stored.message.id).map(|d| (stored, d)));
    Ok(Some((row.get(MESSAGE_WIDTH)?, fence, read)))
}

/// A damaged message stops at itself: it is set aside and its neighbours go on.
fn set_aside(tx: &Work<'_>, id: i64, error: &HubError) -> rusqlite::Result<()> {
    let note = format!("{error}{SEE_DOCTOR}");
    tx.db
        .prepare_cached("UPDATE deliveries SET state = 5, note = ?2, ended_at = ?3 WHERE id = ?1")?
        .execute(params![id, note, tx.now.as_microsecond()])?;
    Ok(())
}

/// Queues again what was set aside, once its message can be read.
pub(crate) fn take_back(tx: &Work<'_>, seq: i64) -> Result<(), HubError> {
    tx.db.execute(
        "UPDATE deliveries SET state = 0, note = NULL, ended_at = NULL, owner = NULL, due_at = ?3 \
         WHERE id >= ?1 AND id < ?2 AND state = 5 AND substr(note, -length(?4)) = ?4",
        params![seq * SPREAD, (seq + 1) * SPREAD, tx.now.as_microsecond(), SEE_DOCTOR],
    )?;
    Ok(())
}

/// Writes down how an attempt ended, unless somebody else holds the delivery by now.
fn settle(
    tx: &mut Work<'_>,
    id: DeliveryId,
    fence: i64,
    outcome: &Outcome,
) -> Result<Option<DeliveryState>, HubError> {
    let found = read_delivery(tx, id, Some(fence))?;
    let Some((message, accepted_at, expires_at, mut delivery)) = found else { return Ok(None) };
    let jitter = fastrand::f64();
    let state =
        after_attempt(outcome, delivery.attempts, accepted_at, expires_at, tx.now, jitter, tx.config.retry);
    let note = match outcome {
        Outcome::Delivered => None,
        Outcome::Refused { reason } | Outcome::Unreachable { reason } => Some(reason.clone()),
    };
    delivery.message = message;
    put_state(tx, &mut delivery, state, note)?;
    Ok(Some(state))
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
    let accepted = crate::clock::from_micros(row.get(1)?);
    let expires = row.get::<_, Option<i64>>(2)?.map(crate::clock::from_micros);
    Ok(Some((message, accepted, expires, rows::delivery(row, 5, message)?)))
}

/// Makes deliveries due at once whose owner is gone: a process that was killed holds no lease.
pub(crate) fn release_gone(tx: &mut Work<'_>) -> Result<(), HubError> {
    let owners: Vec<String> = {
        let mut statement =
            tx.db.prepare("SELECT DISTINCT owner FROM deliveries WHERE state = 1 AND owner IS NOT NULL")?;
        let owners = statement.query_map([], |row| row.get(0))?;
        owners.collect::<rusqlite::Result<_>>()?
    };
    for owner in owners {
        let gone = owner.parse::<Owner>().map_or(true, |owner| owner.is_gone());
        if gone {
            tx.db.execute(
                "UPDATE deliveries SET due_at = ?2 WHERE state = 1 AND owner = ?1",
                params![owner, tx.now.as_microsecond()],
            )?;
        }
    }
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
                "UPDATE deliveries SET due_at = ?2 WHERE state IN (0, 1, 6) AND state = ?1 AND due_at > ?2",
            )?
            .execute([state_number(state), latest])?;
    }
    Ok(())
}

/// Ends deliveries whose message lost its use before it was taken. At most `most` at a time.
pub(crate) fn expire_due(tx: &mut Work<'_>, most: usize) -> Result<Vec<Delivery>, HubError> {
    let sql = format!(
        "SELECT m.id, {DELIVERY_COLUMNS} FROM deliveries d JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE d.expires_at IS NOT NULL AND d.expires_at <= ?1 AND d.state IN (0, 1, 2, 3, 6) LIMIT ?2"
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
    }
    Ok(expired)
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
