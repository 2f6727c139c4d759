//! The doors of this process at their end: what was accepted is delivered, or stays queued.

use std::future::Future;
use std::time::Duration;

use switchboard_core::Door;
use switchboard_sys::service_lease;
use tokio_util::sync::CancellationToken;

use super::Hub;
use crate::error::HubError;
use crate::outbox;

/// The service of the process that has all doors open.
const SERVE: &str = "serve";

/// How long a door is drained at its shutdown. Clients of the TypeScript SDK kill a server four seconds after they have
/// closed its stdin.
const DRAIN: Duration = Duration::from_secs(3);

impl Hub {
    /// Takes no further deliveries; those already handed over can still be reported on.
    pub fn close_doors(&self) {
        self.inner.doors.close();
    }

    /// Runs `deliveries`, the work of a door on its [`Outbound`](crate::Outbound), until `shutdown`; then drains the door.
    pub async fn run_door(
        &self,
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

    /// Runs `deliveries` until the door has nothing due, for `limit` at most. What remains goes back to the queue; returns
    /// true if that is nothing.
    pub async fn drain_door(
        &self,
        door: Door,
        deliveries: impl Future<Output = ()>,
        limit: Duration,
    ) -> bool {
        let close_when_idle = async {
            let mut changes = self.changes();
            // A hub that cannot be read delivers nothing either.
            while self.has_due(door).await.unwrap_or(false) {
                changes.next().await;
            }
            self.inner.doors.close_one(door);
            std::future::pending::<()>().await;
        };
        let drained = async {
            tokio::select! {
                () = deliveries => {}
                () = close_when_idle => {}
            }
        };
        let is_drained = tokio::time::timeout(limit, drained).await.is_ok();
        self.inner.doors.close_one(door);
        is_drained
    }

    /// True if a delivery of this door waits to be handed over.
    pub async fn has_due(&self, door: Door) -> Result<bool, HubError> {
        let now = self.now();
        self.read(move |db| outbox::is_due(db, &[door], now)).await
    }

    /// True if a process that has ended left deliveries of this door in the queue, and no process works on them: `serve` does
    /// not run, or is stopped.
    pub async fn has_abandoned_deliveries(&self, door: Door) -> Result<bool, HubError> {
        let now = self.now();
        let waits =
            self.read(move |db| Ok(outbox::is_due(db, &[door], now)? || outbox::is_abandoned(db, door)?));
        Ok(waits.await? && !service_lease::is_running(&self.inner.folder, SERVE)?)
    }

    /// True if this process has opened a door.
    pub fn has_opened_door(&self) -> bool {
        self.inner.doors.opened() > 0
    }
}
