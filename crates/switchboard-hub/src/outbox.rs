//! The outbox: persisted deliveries, leased to the door that works them off.
//!
//! queued → in flight (leased, fenced) → delivered, refused, expired, or failed until its retry is due.
//! A lease that runs out, or whose owner is gone, makes its delivery due again; the fence keeps the
//! late answer of the former owner from counting.

mod claim;
mod returned;
mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use switchboard_core::{Delivery, DeliveryId, DeliveryState, Door, Message, Outcome};
use switchboard_sys::clock::Clock;
use switchboard_sys::owner::Owner;
use tokio::sync::mpsc;

pub(crate) use self::claim::{claim_due, enqueue, is_abandoned, is_due};
use self::claim::{half_lease, renew};
pub(crate) use self::returned::tell as tell_returned;
use self::state::{NO_OUTCOME, delivered, settle};
pub(crate) use self::state::{
    UNFILED, bound_times, expire_due, expired_unarchived, put_state, release_gone, retry_first_deliveries,
    retry_peer_now, take_back, unfiled_key,
};
use crate::error::HubError;
use crate::store::writer::{Work, Writer};

/// First words of the note on a delivery that failed because its disk is full, over its quota or read-only. No probe
/// notices a quota, and a mailbox may be on another disk than the store.
pub const WAITS_FOR_DISK: &str = "it waits for the disk: ";

/// Most deliveries that lie ready for a door to take. The others wait in the database.
const IN_FLIGHT: usize = 256;

/// The doors that are open in this process.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    open: Arc<Mutex<HashMap<Door, mpsc::Sender<Handoff>>>>,
    /// How often one was opened.
    opened: Arc<AtomicU64>,
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

/// One delivery, handed to its door. Dropped without a report it goes back to the queue; by a panic, it is retried with backoff.
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
        Self { open: Arc::default(), opened: Arc::default(), owner, clock, writer: Arc::default() }
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
        self.opened.fetch_add(1, Ordering::Release);
        Outbound { queue, taken: Vec::new(), doors: self.clone() }
    }

    /// This process, as deliveries name it.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }

    /// Hands nothing more to one door.
    pub(crate) fn close_one(&self, door: Door) {
        self.open.lock().remove(&door);
    }

    /// How often a door was opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
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

    /// Takes nothing more; what was handed over and not taken. Dropped while the hub is open, that would have to wait
    /// for its retry, behind what was sent after it.
    pub async fn close(mut self) -> Vec<Handoff> {
        self.queue.close();
        let mut rest = std::mem::take(&mut self.taken);
        while let Some(handoff) = self.queue.recv().await {
            rest.push(handoff);
        }
        rest
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
    /// Says how the attempt ended; returns once that is written.
    ///
    /// The answer is the state that follows, or nothing where another process has taken the delivery
    /// over in the meantime and this report no longer counts.
    pub async fn report(self, outcome: Outcome) -> Result<Option<DeliveryState>, HubError> {
        Self::report_all(vec![(self, outcome)]).await.pop().unwrap_or(Err(HubError::Closed))
    }

    /// Says how many attempts ended, all in one transaction.
    pub async fn report_all(reports: Vec<(Self, Outcome)>) -> Vec<Result<Option<DeliveryState>, HubError>> {
        let count = reports.len();
        let reports: Vec<_> =
            reports.into_iter().map(|(handoff, outcome)| handoff.into_report(outcome)).collect();
        let Some(writer) = reports.iter().flatten().map(|report| report.claim.writer.clone()).next() else {
            return (0..count).map(|_| Err(HubError::Closed)).collect();
        };
        // Forgotten in a power failure, the deliveries are made again and find what they made before.
        let settled =
            async { writer.queue_repeatable(move |tx| settle_all(tx, reports)).await?.result().await };
        match settled.await {
            Ok(answers) => answers,
            Err(error) => (0..count).map(|_| Err(error.again())).collect(),
        }
    }

    /// A delivery that was leased to its submitter by the transaction that queued it.
    pub(crate) fn of_submitter(
        writer: &Writer,
        now: Timestamp,
        message: Arc<Message>,
        seq: i64,
        delivery: Delivery,
    ) -> Self {
        let claim = Claim { id: delivery.id, fence: 1, fresh_until: now, writer: writer.clone() };
        Self { message, seq, delivery, claim: Some(claim) }
    }

    /// Begins the lease anew, for work that waits here longer than a lease lasts. Nobody waits for that; where somebody
    /// else has taken the delivery over, nothing changes.
    pub fn renew_lease(&self) {
        if let Some(Claim { id, fence, writer, .. }) = &self.claim {
            let claim = (*id, *fence);
            writer.post(move |tx| renew(tx, &[claim]).map(drop));
        }
    }

    fn into_report(mut self, outcome: Outcome) -> Option<Report> {
        let claim = self.claim.take()?;
        Some(Report { delivery: self.delivery.clone(), claim, outcome })
    }
}

/// How an attempt ended.
struct Report {
    delivery: Delivery,
    claim: Claim,
    outcome: Outcome,
}

/// Writes down how attempts ended. What is wrong with one of them is its own; what is wrong with the database is everybody's.
fn settle_all(
    tx: &mut Work<'_>,
    reports: Vec<Option<Report>>,
) -> Result<Vec<Result<Option<DeliveryState>, HubError>>, HubError> {
    let mut answers = Vec::with_capacity(reports.len());
    for report in reports {
        let Some(Report { delivery, claim, outcome }) = report else {
            answers.push(Err(HubError::Closed));
            continue;
        };
        let settled = match outcome {
            Outcome::Delivered => delivered(tx, delivery, claim.fence),
            outcome => settle(tx, claim.id, claim.fence, &outcome),
        };
        match settled {
            Err(error) if error.of_database().is_some() => return Err(error),
            settled => answers.push(settled),
        }
    }
    Ok(answers)
}

impl Drop for Handoff {
    fn drop(&mut self) {
        if let Some(Claim { id, fence, writer, .. }) = self.claim.take() {
            // A panic will happen again; a door that is shut down has done nothing wrong.
            let outcome = if std::thread::panicking() {
                Outcome::Unreachable { reason: NO_OUTCOME.into() }
            } else {
                Outcome::Released
            };
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

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
