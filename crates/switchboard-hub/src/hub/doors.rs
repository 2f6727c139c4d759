//! Door shutdown: accepted messages are delivered, or stay queued.

use std::future::Future;
use std::time::Duration;

use switchboard_core::Door;
use switchboard_sys::service_lease;
use tokio_util::sync::CancellationToken;

use super::Hub;
use crate::delivery::outbox;
use crate::error::HubError;

/// Service name of the process that has all doors open.
const SERVE: &str = "serve";

/// Time limit for draining a door at shutdown. Clients of the TypeScript SDK kill a server four seconds after
/// they have closed its stdin.
const DRAIN: Duration = Duration::from_secs(3);

impl Hub {
    /// Closes all doors to new deliveries; outcomes of those already handed over can still be reported.
    pub fn close_doors(&self) {
        self.inner.doors.close();
    }

    /// Runs `deliveries`, a door's loop over its [`Outbound`](crate::Outbound), until `shutdown`; then drains
    /// the door.
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

    /// Runs `deliveries` until the door has nothing due, for at most `limit`. The rest returns to the queue;
    /// true if there is no rest.
    pub async fn drain_door(
        &self,
        door: Door,
        deliveries: impl Future<Output = ()>,
        limit: Duration,
    ) -> bool {
        let close_when_idle = async {
            let mut changes = self.changes();
            // An unreadable hub delivers nothing either.
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

    /// True if a delivery of this door is due.
    pub async fn has_due(&self, door: Door) -> Result<bool, HubError> {
        let now = self.now();
        self.read(move |db| outbox::is_due(db, &[door], now)).await
    }

    /// True if dead processes left deliveries of this door in the queue and no process works on them: `serve`
    /// does not run, or is stopped.
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
