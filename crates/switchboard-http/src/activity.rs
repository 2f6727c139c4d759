//! Active requests of a connection, for its idle timeout and request timeout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Tracks the active requests of one connection. Clones share the same state.
///
/// A waiting task sleeps until the earliest moment at which its timeout can expire, so that requests do not wake the
/// task.
#[derive(Debug, Clone)]
pub struct ActivityTracker(Arc<Mutex<ActiveRequests>>);

#[derive(Debug)]
struct ActiveRequests {
    /// Start of each request by its number. Numbers increase, so the first entry is the oldest request.
    started: BTreeMap<u64, Instant>,
    next: u64,
    /// When the last request ended. Valid only while no request is active.
    idle_since: Instant,
}

/// Guard of an active request, which is dropped with the last byte of the response.
#[derive(Debug)]
pub struct ActiveRequest {
    busy: ActivityTracker,
    number: u64,
}

impl ActivityTracker {
    /// Creates a tracker for a connection without requests.
    pub fn new() -> Self {
        let started = BTreeMap::new();
        Self(Arc::new(Mutex::new(ActiveRequests { started, next: 0, idle_since: Instant::now() })))
    }

    /// Counts a request as active until the guard is dropped.
    pub fn track_request(&self) -> ActiveRequest {
        let mut active = self.0.lock();
        let number = active.next;
        active.next += 1;
        active.started.insert(number, Instant::now());
        ActiveRequest { busy: self.clone(), number }
    }

    /// Waits until the connection has been idle, without any request, for `time`.
    pub async fn idle_for(&self, time: Duration) {
        self.wait(time, |active| active.started.is_empty().then_some(active.idle_since)).await;
    }

    /// Waits until a request has been active for `time`.
    pub async fn request_overdue(&self, time: Duration) {
        self.wait(time, |active| active.started.values().next().copied()).await;
    }

    /// Waits until a state has lasted for `time`. The closure `since` returns the start of that state.
    ///
    /// A state that has not started cannot have lasted before `time` is over.
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

impl Default for ActivityTracker {
    fn default() -> Self {
        Self::new()
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
