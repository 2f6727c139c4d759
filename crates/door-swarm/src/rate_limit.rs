//! Rate limits (§7.4).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Maximum number of separate counters.
///
/// All further keys share one counter, so that memory is bounded and a flood of addresses throttles itself first.
const MAX_COUNTERS: usize = 16_384;

/// Sliding-window rate limit per key.
///
/// Events are counted per fixed window, and the previous window is weighted by the part of it that still overlaps. This
/// is deliberately not the token bucket of `switchboard_http::RateLimiter`, which lets almost twice its burst through
/// within one span. In addition, an event can be released here, and the time is that of the hub's clock.
#[derive(Debug)]
pub(crate) struct RateLimit<K> {
    most: Option<u32>,
    span: SignedDuration,
    counts: Mutex<Counts<K>>,
}

#[derive(Debug)]
struct Counts<K> {
    each: HashMap<K, Count>,
    rest: Count,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// Number of the current window.
    span: i64,
    now: u32,
    before: u32,
}

impl<K: Hash + Eq> RateLimit<K> {
    /// Creates a limit of `most` events within `span`; 0 means unlimited.
    pub(crate) fn new(most: u32, span: SignedDuration) -> Self {
        let counts = Counts { each: HashMap::new(), rest: Count::default() };
        Self { most: (most > 0).then_some(most), span, counts: Mutex::new(counts) }
    }

    /// Counts an event. Above the limit, returns the number of seconds until the next window starts.
    pub(crate) fn acquire(&self, key: K, now: Timestamp) -> Result<(), u32> {
        let Some(most) = self.most else { return Ok(()) };
        let length = i64::try_from(self.span.as_millis()).unwrap_or(i64::MAX).max(1);
        let (span, within) =
            (now.as_millisecond().div_euclid(length), now.as_millisecond().rem_euclid(length));
        let mut counts = self.counts.lock();
        if counts.each.len() >= MAX_COUNTERS && !counts.each.contains_key(&key) {
            counts.each.retain(|_, count| count.span >= span - 1);
        }
        let count = if counts.each.len() >= MAX_COUNTERS && !counts.each.contains_key(&key) {
            &mut counts.rest
        } else {
            counts.each.entry(key).or_default()
        };
        if count.span != span {
            let before = if count.span == span - 1 { count.now } else { 0 };
            *count = Count { span, now: 0, before };
        }
        let left = i128::from(length - within);
        let weighed = i128::from(count.before) * left / i128::from(length) + i128::from(count.now);
        if weighed >= i128::from(most) {
            // Time until the next window, rounded up to seconds.
            let seconds = (left + 999) / 1000;
            return Err(u32::try_from(seconds.max(1)).unwrap_or(u32::MAX));
        }
        count.now += 1;
        Ok(())
    }

    /// Releases an event that should not have been counted.
    pub(crate) fn release(&self, key: &K, now: Timestamp) {
        if self.most.is_none() {
            return;
        }
        let length = i64::try_from(self.span.as_millis()).unwrap_or(i64::MAX).max(1);
        let span = now.as_millisecond().div_euclid(length);
        if let Some(count) = self.counts.lock().each.get_mut(key).filter(|count| count.span == span) {
            count.now = count.now.saturating_sub(1);
        }
    }
}

/// Returns the rate limit key of an address: an IPv6 /64 network counts as one client.
pub(crate) fn rate_limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let mut segments = v6.segments();
            segments[4..].fill(0);
            IpAddr::V6(segments.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
#[path = "rate_limit_tests.rs"]
mod tests;
