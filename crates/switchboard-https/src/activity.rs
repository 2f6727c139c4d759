//! Which requests of a connection are being answered, and when it has been idle, or one of them under way, for too long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The requests of one connection. Clones are handles on the same.
///
/// Whoever waits for an end looks when it could be one at the earliest, and is not woken by each request.
#[derive(Debug, Clone)]
pub(crate) struct ActivityTracker(Arc<Mutex<ActiveRequests>>);

#[derive(Debug)]
struct ActiveRequests {
    /// When each began. Numbers rise, so the first is the oldest.
    started: BTreeMap<u64, Instant>,
    next: u64,
    /// Since when there has been none, where there is none.
    idle_since: Instant,
}

/// A request that is being answered, until the last byte of the answer is on its way.
pub(crate) struct ActiveRequest {
    busy: ActivityTracker,
    number: u64,
}

impl ActivityTracker {
    pub(crate) fn new() -> Self {
        let started = BTreeMap::new();
        Self(Arc::new(Mutex::new(ActiveRequests { started, next: 0, idle_since: Instant::now() })))
    }

    /// Counts a request until what is returned is dropped.
    pub(crate) fn track_request(&self) -> ActiveRequest {
        let mut active = self.0.lock();
        let number = active.next;
        active.next += 1;
        active.started.insert(number, Instant::now());
        ActiveRequest { busy: self.clone(), number }
    }

    /// Waits until there was no request for so long.
    pub(crate) async fn idle_for(&self, time: Duration) {
        self.wait(time, |active| active.started.is_empty().then_some(active.idle_since)).await;
    }

    /// Waits until some request has taken longer than that.
    pub(crate) async fn request_overdue(&self, time: Duration) {
        self.wait(time, |active| active.started.values().next().copied()).await;
    }

    /// Waits until what `since` tells the beginning of has lasted for so long. Where it has not begun, it cannot have lasted
    /// before that time is over.
    async fn wait(&self, time: Duration, since: impl Fn(&ActiveRequests) -> Option<Instant>) {
        loop {
            let (start, now) = (since(&self.0.lock()), Instant::now());
            let end = start.unwrap_or(now) + time;
            if start.is_some() && end <= now {
                return;
            }
            sleep_until(end).await;
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut active = self.busy.0.lock();
        active.started.remove(&self.number);
        if active.started.is_empty() {
            active.idle_since = Instant::now();
        }
    }
}
