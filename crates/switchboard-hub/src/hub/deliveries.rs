//! Access to deliveries: opens and drains doors; retries, expires and restores deliveries.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId, Receipt};
use switchboard_sys::service_lease;
use tokio_util::sync::CancellationToken;

use super::Hub;
use crate::delivery::missing_deliveries::{self, MissingDeliveries};
use crate::delivery::outbox::{self, Outbound};
use crate::delivery::unread_reminders::start_reminding;
use crate::error::HubError;
use crate::journal::extent::Extent;
use crate::journal::reads;

/// Service name of the process that has all doors open.
const SERVE: &str = "serve";

/// Time limit for draining a door at shutdown.
///
/// Clients of the TypeScript SDK kill a server four seconds after they have closed its stdin.
const DRAIN: Duration = Duration::from_secs(3);

/// Access to deliveries: opens and drains doors; retries, expires and restores deliveries.
#[derive(Clone, Copy)]
pub struct Deliveries<'h> {
    pub(super) hub: &'h Hub,
}

impl Deliveries<'_> {
    /// Opens a door: from now on, this process makes the door's deliveries.
    pub async fn open_door(self, door: Door) -> Result<Outbound, HubError> {
        let doors = self.hub.inner.doors.clone();
        let opening = self.hub.write(move |tx| {
            outbox::clamp_future_times(tx)?;
            outbox::release_orphaned(tx)?;
            start_reminding(tx)?;
            // The door opens last: if it opened first, it would get newly queued deliveries before the orphaned
            // deliveries of dead processes.
            Ok(doors.open(door))
        });
        let outbound = match opening.await {
            // The periodic tick catches up once the disk can be written again.
            Err(error) if error.is_disk() => {
                tracing::warn!(%error, %door, "deliveries cannot start yet");
                self.hub.inner.doors.open(door)
            }
            opened => opened?,
        };
        if !self.hub.inner.ticking.swap(true, Ordering::Relaxed) {
            let hub = self.hub.clone();
            let ticking = async move { hub.tick().await };
            let shutdown = self.hub.inner.shutdown.clone();
            self.hub.inner.tasks.spawn(async move { shutdown.run_until_cancelled_owned(ticking).await });
        }
        Ok(outbound)
    }

    /// Closes all doors to new deliveries. Outcomes of deliveries in flight can still be reported.
    pub fn close_doors(self) {
        self.hub.inner.doors.close();
    }

    /// Runs a door's delivery loop until `shutdown`, then drains the door.
    ///
    /// `deliveries` is the loop over the door's [`Outbound`](crate::Outbound).
    pub async fn run_door(
        self,
        door: Door,
        mut deliveries: impl Future<Output = ()> + Unpin,
        shutdown: CancellationToken,
    ) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = &mut deliveries => return,
        }
        if !self.drain_door(door, deliveries, DRAIN).await {
            tracing::warn!(
                door = door.as_str(),
                "not all messages were delivered before the shutdown; they stay queued"
            );
        }
    }

    /// Runs `deliveries` until nothing is due for the door, for at most `limit`.
    ///
    /// Returns true if all due deliveries were made. The others return to the queue.
    pub async fn drain_door(self, door: Door, deliveries: impl Future<Output = ()>, limit: Duration) -> bool {
        let close_when_idle = async {
            let mut changes = self.hub.changes();
            // If the hub cannot be read, the door cannot deliver either, so draining ends.
            while self.has_due(door).await.unwrap_or(false) {
                changes.next().await;
            }
            self.hub.inner.doors.close_one(door);
            std::future::pending::<()>().await;
        };
        let drained = async {
            tokio::select! {
                () = deliveries => {}
                () = close_when_idle => {}
            }
        };
        let is_drained = tokio::time::timeout(limit, drained).await.is_ok();
        self.hub.inner.doors.close_one(door);
        is_drained
    }

    /// Returns true if this process has opened a door.
    pub fn has_opened_door(self) -> bool {
        self.hub.inner.doors.opened() > 0
    }

    /// Returns true if a delivery of this door is due.
    pub async fn has_due(self, door: Door) -> Result<bool, HubError> {
        let now = self.hub.now();
        self.hub.read(move |db| outbox::is_due(db, &[door], now)).await
    }

    /// Returns true if deliveries of this door wait and no process makes them.
    ///
    /// The deliveries are due, or leased to a dead process, and `serve` does not run or is suspended.
    pub async fn has_abandoned(self, door: Door) -> Result<bool, HubError> {
        let now = self.hub.now();
        let waits =
            self.hub.read(move |db| Ok(outbox::is_due(db, &[door], now)? || outbox::is_abandoned(db, door)?));
        Ok(waits.await? && !service_lease::is_running(&self.hub.inner.folder, SERVE)?)
    }

    /// Waits until no delivery of a message is pending for an open door of this process.
    ///
    /// A delivery is pending while it is queued or in flight.
    pub async fn wait_until_settled(self, id: MessageId) -> Result<Receipt, HubError> {
        let mut changes = self.hub.changes();
        loop {
            let found = self.hub.journal().receipt(id).await?;
            let Some((_, receipt)) = found else {
                return Err(HubError::UnknownMessage { id: id.to_string() });
            };
            let waits = |d: &Delivery| {
                matches!(d.state, DeliveryState::Queued | DeliveryState::InFlight)
                    && self.hub.inner.doors.is_open(d.route.door())
            };
            if !receipt.deliveries.iter().any(waits) {
                return Ok(receipt);
            }
            changes.next().await;
        }
    }

    /// Returns the journal number of the first message that a swarm peer still has to receive.
    pub async fn first_unsent(self, peer: AgentId) -> Result<Option<i64>, HubError> {
        if let Some(first) = self.hub.try_read(&|db| reads::first_unsent(db, &peer)) {
            return Ok(first);
        }
        self.hub.read(move |db| reads::first_unsent(db, &peer)).await
    }

    /// Retries failed deliveries to a peer at once and in order.
    ///
    /// Call this when the peer is reachable again. While the peer's first delivery is in flight, nothing happens: the
    /// door retries the others once the first has arrived.
    pub async fn retry_peer_now(self, peer: AgentId) -> Result<(), HubError> {
        // Usually no delivery waits, and a read costs less than a write.
        let now = self.hub.now();
        if self.hub.try_read(&|db| reads::first_waits(db, &peer, now)) == Some(false) {
            return Ok(());
        }
        self.hub.write(move |tx| outbox::retry_peer_now(tx, &peer)).await
    }

    /// Retries the first failed delivery of each peer, for a door that starts.
    ///
    /// The process that would have retried the delivery may be dead.
    pub async fn retry_first(self) -> Result<(), HubError> {
        self.hub.write(outbox::retry_first_deliveries).await
    }

    /// Expires deliveries whose message has expired; returns them.
    pub async fn expire_due(self) -> Result<Vec<Delivery>, HubError> {
        self.hub.write(|tx| outbox::expire_due(tx, usize::MAX)).await
    }

    /// Finds the messages in a part of the journal that have lost deliveries.
    pub async fn missing(self, extent: Extent) -> Result<Vec<MissingDeliveries>, HubError> {
        let directory = self.hub.directory().await?;
        self.hub.read(move |db| missing_deliveries::find(db, &directory, extent.after(db)?)).await
    }

    /// Restores the missing deliveries of a message; returns their number.
    ///
    /// Deliveries in `had` get the state that is given there, and the others are queued.
    pub async fn restore(self, id: MessageId, had: Vec<(AgentId, DeliveryState)>) -> Result<usize, HubError> {
        self.hub.write(move |tx| missing_deliveries::restore(tx.db, &tx.directory.value, id, &had)).await
    }
}
