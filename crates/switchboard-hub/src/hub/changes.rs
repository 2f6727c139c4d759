//! Change notification: wakes waiters when any process changes the journal.

use std::sync::atomic::Ordering;
use std::time::Duration;

use switchboard_sys::blocking;
use switchboard_sys::file_watcher::poll_reason;
use tokio::sync::{broadcast, watch};

use super::Hub;
use crate::change_signal::{POLL_INTERVAL, SLOW_POLL_INTERVAL};
use crate::error::HubError;
use crate::events::HubEvent;
use crate::journal::maintenance;
use crate::journal::reads;

/// Delay before a short command starts to watch other processes.
///
/// A watch needs a thread and a file watcher, while the command's own work takes only a few milliseconds.
const WATCH_DELAY: Duration = Duration::from_millis(20);

/// Watcher that reports when any process may have changed the journal.
pub struct Changes {
    signal: watch::Receiver<u64>,
    pause: Duration,
    /// The hub, until this watcher starts to watch other processes.
    unwatched: Option<Hub>,
}

impl Changes {
    /// Waits for a write, or for the end of the poll interval; the caller then polls.
    ///
    /// The interval is a quarter of a second where file events may be missed, and two seconds where they are reliable.
    pub async fn next(&mut self) {
        // The sender lives as long as the hub. Without it, `changed` would return at once instead of after the poll
        // interval.
        let changed = tokio::time::timeout(self.pause, self.signal.changed()).await;
        if changed.is_err()
            && let Some(hub) = self.unwatched.take()
        {
            self.pause = hub.start_watching();
        }
    }
}

impl Hub {
    /// Subscribes to events. The first subscriber makes the hub watch other processes too.
    pub async fn subscribe(&self) -> Result<broadcast::Receiver<HubEvent>, HubError> {
        let events = self.inner.events.subscribe();
        if !self.inner.following.swap(true, Ordering::Relaxed) {
            let last = self.read(reads::last).await;
            // After a failure, the next subscriber retries.
            let last = last.inspect_err(|_| self.inner.following.store(false, Ordering::Relaxed))?;
            let (hub, changes) = (self.clone(), self.changes());
            let following = async move { hub.publish_accepted(changes, last).await };
            let shutdown = self.inner.shutdown.clone();
            self.inner.tasks.spawn(async move { shutdown.run_until_cancelled_owned(following).await });
        }
        Ok(events)
    }

    /// Returns a watcher of changes to the journal by any process.
    pub fn changes(&self) -> Changes {
        let signal = self.inner.signal.subscribe();
        if blocking::is_inline() {
            return Changes { signal, pause: WATCH_DELAY, unwatched: Some(self.clone()) };
        }
        Changes { signal, pause: self.start_watching(), unwatched: None }
    }

    /// Starts to watch other processes; returns the poll interval.
    fn start_watching(&self) -> Duration {
        let reason = poll_reason(self.inner.folder.path(), self.watch_signal());
        if reason.is_none() { SLOW_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    /// Starts to watch other processes, unless this process already does.
    ///
    /// Returns true if file events are available.
    pub(super) fn watch_signal(&self) -> bool {
        self.inner.signal_watcher.lock().get_or_insert_with(|| self.inner.signal.watch_others()).is_active()
    }

    /// Publishes an event for each message that any process appends.
    async fn publish_accepted(&self, mut changes: Changes, mut last: i64) {
        loop {
            changes.next().await;
            // Messages are read in pages, so that a subscriber never gets more events at once than its buffer holds.
            while let Ok(page) = self.read(move |db| maintenance::ids_after(db, last)).await {
                let Some((newest, _)) = page.last() else { break };
                last = *newest;
                for (seq, id) in page {
                    self.inner.events.send(HubEvent::Accepted { seq, id });
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
