//! Outbox: a persistent queue of deliveries, each leased to the door that delivers it.
//!
//! queued → in flight (leased, fenced) → delivered, refused, expired, or failed until its retry is due. A lease that
//! expires, or whose owner is dead, makes its delivery due again (redelivery). The fencing token invalidates a late
//! report of the former owner.

mod forward_loops;
mod lease;
mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use switchboard_core::{Delivery, DeliveryId, DeliveryState, Door, Message, Outcome};
use switchboard_sys::clock::Clock;
use switchboard_sys::process_identity::ProcessIdentity;
use tokio::sync::mpsc;

pub(crate) use self::forward_loops::notify_refused as report_refused_forward;
pub(crate) use self::lease::{enqueue, is_abandoned, is_due, lease_due};
use self::lease::{half_lease_end, renew};
use self::state::{NO_OUTCOME, record_delivered, record_outcome};
pub(crate) use self::state::{
    UNARCHIVED, clamp_future_times, expire_due, expired_unarchived, put_state, release_orphaned,
    requeue_repaired, retry_first_deliveries, retry_peer_now, unarchived_key,
};
use crate::error::HubError;
use crate::store::writer::{Transaction, Writer};

/// Prefix of the note on a delivery that failed because of the disk.
///
/// The disk is full, over quota or read-only. No probe detects a quota, and a mailbox may be on another disk than the
/// store.
pub const WAITS_FOR_DISK: &str = "it waits for the disk: ";

/// Maximum number of deliveries that are leased ahead for one door. The others wait in the database.
const IN_FLIGHT: usize = 256;

/// The doors that are open in this process.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    open: Arc<Mutex<HashMap<Door, mpsc::Sender<Handoff>>>>,
    /// Number of times a door was opened.
    opened: Arc<AtomicU64>,
    owner: Arc<str>,
    clock: Clock,
    /// Writer that records reports; set once it runs.
    writer: Arc<std::sync::OnceLock<Writer>>,
}

/// Receiver of one door's deliveries.
#[derive(Debug)]
pub struct Outbound {
    queue: mpsc::Receiver<Handoff>,
    /// Deliveries received from the queue and not yet returned, so that a dropped future loses nothing.
    buffered: Vec<Handoff>,
    doors: Doors,
}

/// Delivery that is leased to its door.
///
/// If it is dropped without a report, it returns to the queue; if it is dropped by a panic, it is retried with backoff.
#[doc(alias = "leased delivery")]
#[derive(Debug)]
pub struct Handoff {
    /// The message to deliver.
    pub message: Arc<Message>,
    /// Number of the message in the journal.
    pub seq: i64,
    /// Recipient, route and state.
    pub delivery: Delivery,
    lease: Option<Lease>,
}

/// Lease on a delivery: the right to report its outcome.
#[derive(Debug)]
struct Lease {
    id: DeliveryId,
    fence: i64,
    /// End of the first half of the lease. After that, the lease is renewed before the work starts.
    fresh_until: Timestamp,
    writer: Writer,
}

/// Handoff that is held back until its transaction is committed.
pub(crate) struct PendingHandoff {
    permit: mpsc::OwnedPermit<Handoff>,
    handoff: Handoff,
    /// Lease, attached only when the handoff is sent: if the transaction failed, there is no delivery to report on.
    lease: Option<Lease>,
}

impl Doors {
    pub(crate) fn new(clock: Clock) -> Self {
        let owner = ProcessIdentity::this_process().to_string().into();
        Self { open: Arc::default(), opened: Arc::default(), owner, clock, writer: Arc::default() }
    }

    /// Connects the doors to the writer that records their reports.
    ///
    /// Writer and doors keep each other alive, so [`Doors::close`] has to be called before either can end.
    pub(crate) fn attach(&self, writer: Writer) {
        let _ = self.writer.set(writer);
    }

    /// Opens a door: from now on, this process makes the door's deliveries.
    pub(crate) fn open(&self, door: Door) -> Outbound {
        let (sender, queue) = mpsc::channel(IN_FLIGHT);
        self.open.lock().insert(door, sender);
        self.opened.fetch_add(1, Ordering::Release);
        Outbound { queue, buffered: Vec::new(), doors: self.clone() }
    }

    /// Returns the id of this process, as stored in the leases of deliveries.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }

    /// Closes one door to new deliveries.
    pub(crate) fn close_one(&self, door: Door) {
        self.open.lock().remove(&door);
    }

    /// Returns how many times a door was opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    pub(crate) fn is_open(&self, door: Door) -> bool {
        self.open.lock().get(&door).is_some_and(|sender| !sender.is_closed())
    }

    pub(crate) fn all_open(&self) -> Vec<Door> {
        self.open.lock().keys().copied().collect()
    }

    /// Reserves a permit for a slot in a door's queue.
    ///
    /// Returns `None` if the door is closed or its queue is full.
    fn permit(&self, door: Door) -> Option<mpsc::OwnedPermit<Handoff>> {
        let sender = self.open.lock().get(&door)?.clone();
        sender.try_reserve_owned().ok()
    }
}

impl Outbound {
    /// Returns the next deliveries, between one and `most`; returns none once the hub shuts down.
    pub async fn next(&mut self, most: usize) -> Vec<Handoff> {
        loop {
            if self.buffered.is_empty() && self.queue.recv_many(&mut self.buffered, most).await == 0 {
                return Vec::new();
            }
            self.renew_leases().await;
            let most = most.min(self.buffered.len());
            let handoffs: Vec<_> = self.buffered.drain(..most).collect();
            if !handoffs.is_empty() {
                return handoffs;
            }
        }
    }

    /// Closes the receiver and returns the deliveries that were leased and not received.
    ///
    /// If such deliveries were dropped while the hub is open, they would wait for their retry, behind later messages.
    pub async fn close(mut self) -> Vec<Handoff> {
        self.queue.close();
        let mut rest = std::mem::take(&mut self.buffered);
        while let Some(handoff) = self.queue.recv().await {
            rest.push(handoff);
        }
        rest
    }

    /// Renews old leases; drops deliveries that another process has taken over.
    async fn renew_leases(&mut self) {
        let now = self.doors.clock.now();
        let leases = self.buffered.iter().filter_map(|handoff| handoff.lease.as_ref());
        let old: Vec<_> =
            leases.filter(|lease| lease.fresh_until <= now).map(|lease| (lease.id, lease.fence)).collect();
        let Some(writer) = self.doors.writer.get().filter(|_| !old.is_empty()) else { return };
        let batch = old.clone();
        // A closed hub renews nothing; the later report of the outcome will fail with that error.
        let Ok(renewed) = writer.write(move |tx| renew(tx, &batch)).await else { return };
        self.buffered.retain_mut(|handoff| {
            let Some(lease) = &mut handoff.lease else { return true };
            let key = (lease.id, lease.fence);
            if !old.contains(&key) {
                return true;
            }
            match renewed.get(&key.0) {
                Some(fresh_until) => lease.fresh_until = *fresh_until,
                // The lease is lost, so no outcome can be reported.
                None => handoff.lease = None,
            }
            handoff.lease.is_some()
        });
    }
}

impl Handoff {
    /// Reports the outcome of the attempt; returns once the outcome is recorded.
    ///
    /// Returns the new state, or `None` if another process has taken the delivery over in the meantime, so that this
    /// report no longer counts.
    pub async fn report(self, outcome: Outcome) -> Result<Option<DeliveryState>, HubError> {
        Self::report_all(vec![(self, outcome)]).await.pop().unwrap_or(Err(HubError::Closed))
    }

    /// Reports the outcomes of many attempts in one transaction.
    pub async fn report_all(reports: Vec<(Self, Outcome)>) -> Vec<Result<Option<DeliveryState>, HubError>> {
        let count = reports.len();
        let reports: Vec<_> =
            reports.into_iter().map(|(handoff, outcome)| handoff.into_report(outcome)).collect();
        let Some(writer) = reports.iter().flatten().map(|report| report.lease.writer.clone()).next() else {
            return (0..count).map(|_| Err(HubError::Closed)).collect();
        };
        // After a power failure the deliveries are redelivered, and the doors deduplicate them against what they wrote
        // before.
        let settled =
            async { writer.queue_repeatable(move |tx| record_outcomes(tx, reports)).await?.result().await };
        match settled.await {
            Ok(answers) => answers,
            Err(error) => (0..count).map(|_| Err(error.duplicate())).collect(),
        }
    }

    /// Creates the handoff of a delivery that its submitter leased when queueing it.
    pub(crate) fn of_submitter(
        writer: &Writer,
        now: Timestamp,
        message: Arc<Message>,
        seq: i64,
        delivery: Delivery,
    ) -> Self {
        let lease = Lease { id: delivery.id, fence: 1, fresh_until: now, writer: writer.clone() };
        Self { message, seq, delivery, lease: Some(lease) }
    }

    /// Renews the lease, for work that may wait longer than a lease lasts.
    ///
    /// Returns at once. If another process has taken the delivery over, nothing changes.
    pub fn renew_lease(&self) {
        if let Some(Lease { id, fence, writer, .. }) = &self.lease {
            let lease = (*id, *fence);
            writer.post(move |tx| renew(tx, &[lease]).map(drop));
        }
    }

    fn into_report(mut self, outcome: Outcome) -> Option<Report> {
        let lease = self.lease.take()?;
        Some(Report { delivery: self.delivery.clone(), lease, outcome })
    }
}

/// Report of the outcome of an attempt, with its fencing token.
struct Report {
    delivery: Delivery,
    lease: Lease,
    outcome: Outcome,
}

/// Records outcomes of attempts in one transaction.
///
/// An error of one report affects only that report; an error of the database fails all of them.
fn record_outcomes(
    tx: &mut Transaction<'_>,
    reports: Vec<Option<Report>>,
) -> Result<Vec<Result<Option<DeliveryState>, HubError>>, HubError> {
    let mut answers = Vec::with_capacity(reports.len());
    for report in reports {
        let Some(Report { delivery, lease, outcome }) = report else {
            answers.push(Err(HubError::Closed));
            continue;
        };
        let settled = match outcome {
            Outcome::Delivered => record_delivered(tx, delivery, lease.fence),
            outcome => record_outcome(tx, lease.id, lease.fence, &outcome),
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
        if let Some(Lease { id, fence, writer, .. }) = self.lease.take() {
            // A panic would repeat, so it is retried with backoff; a door that shuts down has not failed.
            let outcome = if std::thread::panicking() {
                Outcome::Unreachable { reason: NO_OUTCOME.into() }
            } else {
                Outcome::Released
            };
            writer.post(move |tx| record_outcome(tx, id, fence, &outcome).map(|_| ()));
        }
    }
}

impl PendingHandoff {
    pub(crate) fn send(self) {
        let Self { permit, mut handoff, lease } = self;
        handoff.lease = lease;
        permit.send(handoff);
    }
}

fn stage_handoff(
    tx: &mut Transaction<'_>,
    permit: mpsc::OwnedPermit<Handoff>,
    message: Arc<Message>,
    seq: i64,
    delivery: Delivery,
    fence: i64,
) {
    let fresh_until = half_lease_end(tx);
    let lease = |writer: &Writer| Lease { id: delivery.id, fence, fresh_until, writer: writer.clone() };
    let lease = tx.doors.writer.get().map(lease);
    tx.post_commit.handoffs.push(PendingHandoff {
        permit,
        handoff: Handoff { message, seq, delivery, lease: None },
        lease,
    });
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
