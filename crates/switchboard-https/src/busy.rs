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
pub(crate) struct Busy(Arc<Mutex<UnderWay>>);

#[derive(Debug)]
struct UnderWay {
    /// When each began. Numbers rise, so the first is the oldest.
    begun: BTreeMap<u64, Instant>,
    next: u64,
    /// Since when there has been none, where there is none.
    idle_since: Instant,
}

/// A request that is being answered, until the last byte of the answer is on its way.
pub(crate) struct Counts {
    busy: Busy,
    number: u64,
}

impl Busy {
    pub(crate) fn new() -> Self {
        let begun = BTreeMap::new();
        Self(Arc::new(Mutex::new(UnderWay { begun, next: 0, idle_since: Instant::now() })))
    }

    /// Counts a request until what is returned is dropped.
    pub(crate) fn begin(&self) -> Counts {
        let mut under_way = self.0.lock();
        let number = under_way.next;
        under_way.next += 1;
        under_way.begun.insert(number, Instant::now());
        Counts { busy: self.clone(), number }
    }

    /// Waits until there was no request for so long.
    pub(crate) async fn idle_for(&self, time: Duration) {
        self.wait(time, |under_way| under_way.begun.is_empty().then_some(under_way.idle_since)).await;
    }

    /// Waits until some request has taken longer than that.
    pub(crate) async fn overdue(&self, time: Duration) {
        self.wait(time, |under_way| under_way.begun.values().next().copied()).await;
    }

    /// Waits until what `since` tells the beginning of has lasted for so long. Where it has not begun, it cannot have lasted
    /// before that time is over.
    async fn wait(&self, time: Duration, since: impl Fn(&UnderWay) -> Option<Instant>) {
        loop {
            let (began, now) = (since(&self.0.lock()), Instant::now());
            let end = began.unwrap_or(now) + time;
            if began.is_some() && end <= now {
                return;
            }
            sleep_until(end).await;
        }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        let mut under_way = self.busy.0.lock();
        under_way.begun.remove(&self.number);
        if under_way.begun.is_empty() {
            under_way.idle_since = Instant::now();
        }
    }
}
