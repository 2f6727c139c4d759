//! Tick: the periodic work of a hub with an open door.

use std::time::Duration;

use rusqlite::Connection;
use switchboard_sys::blocking;

use super::Hub;
use crate::delivery::outbox;
use crate::journal::search;

/// Poll interval of a hub with an open door.
///
/// Each tick looks for retries, expired messages and leases of dead processes.
const TICK: Duration = Duration::from_secs(1);

impl Hub {
    pub(super) async fn tick(&self) {
        if blocking::is_inline() {
            // Most short commands have ended before the first tick.
            tokio::time::sleep(TICK).await;
        }
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Only signals of other processes are needed, because the writer of this process checks for due deliveries
        // itself.
        self.watch_signal();
        let mut signal = self.inner.signal.subscribe_to_others();
        for round in 0_u64.. {
            while tokio::select! { _ = ticks.tick() => false, notified = signal.changed() => notified.is_ok() }
            {
                self.lease_due_deliveries().await;
            }
            // Any job, even an empty one, makes the writer check for due deliveries.
            self.inner.writer.post(move |tx| {
                outbox::expire_due(tx, 256)?;
                if round % 10 == 0 {
                    outbox::clamp_future_times(tx)?;
                    outbox::release_orphaned(tx)?;
                }
                Ok(())
            });
            self.send_unread_reminders().await;
            let missing = match self.try_read(&search::missing) {
                Some(missing) => missing,
                None => self.read(search::missing).await.unwrap_or(0),
            };
            if missing >= search::STEP || (missing > 0 && round % 5 == 0) {
                self.inner.writer.post(|tx| search::catch_up(tx, search::STEP).map(drop));
            }
        }
    }

    /// Wakes the writer if a delivery is due for a door that is open here.
    ///
    /// Another process may have left it. Otherwise the write lock stays free for processes that have something to
    /// write.
    async fn lease_due_deliveries(&self) {
        if self.inner.writer.has_queued() {
            return;
        }
        let (doors, now) = (self.inner.doors.all_open(), self.now());
        let is_due = move |db: &Connection| outbox::is_due(db, &doors, now);
        let is_due = match self.try_read(&is_due) {
            Some(is_due) => is_due,
            None => self.read(is_due).await.unwrap_or(false),
        };
        if is_due {
            self.inner.writer.post(|_| Ok(()));
        }
    }
}
