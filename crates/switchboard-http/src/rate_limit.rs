//! Rate limiter (throttle): a token bucket (GCRA) from the `governor` crate, on Tokio's clock.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter as Governor};
use tokio::time::Instant;

/// Rate limiter with a burst, which all callers share.
///
/// It never waits: a caller beyond the limit is told when to retry.
#[doc(alias = "token bucket")]
#[derive(Debug)]
#[doc(alias = "throttle")]
pub struct RateLimiter {
    governor: Governor<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Nanos>>,
}

impl RateLimiter {
    /// Creates a limiter for `burst` calls at once, and one more after each `refill_interval`.
    ///
    /// A value of zero counts as the smallest valid one.
    pub fn new(burst: u32, refill_interval: Duration) -> Self {
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        // `governor` counts nanoseconds in 64 bits, including the time until the bucket is full.
        let longest = Duration::from_nanos(u64::MAX / 4 / u64::from(burst.get()));
        let interval = refill_interval.clamp(Duration::from_nanos(1), longest);
        let quota =
            Quota::with_period(interval).unwrap_or_else(|| Quota::per_second(burst)).allow_burst(burst);
        Self { governor: Governor::direct_with_clock(quota, TokioClock { start: Instant::now() }) }
    }

    /// Takes a token. Fails with the time until the next token is available.
    pub fn acquire(&self) -> Result<(), Duration> {
        let now = self.governor.clock().now();
        self.governor.check().map_err(|rejected| rejected.earliest_possible().duration_since(now).into())
    }
}

/// Tokio's clock, which tests can pause and advance.
#[derive(Debug, Clone)]
struct TokioClock {
    start: Instant,
}

impl Clock for TokioClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RateLimiter;

    #[tokio::test(start_paused = true)]
    async fn burst_then_one_per_interval() {
        let limiter = RateLimiter::new(3, Duration::from_secs(1));
        assert!((0..3).all(|_| limiter.acquire().is_ok()));
        assert_eq!(limiter.acquire(), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(limiter.acquire(), Err(Duration::from_millis(600)), "a rejected call takes no token");
        tokio::time::advance(Duration::from_millis(600)).await;
        assert!(limiter.acquire().is_ok());
        assert!(limiter.acquire().is_err());
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!((0..3).all(|_| limiter.acquire().is_ok()));
        assert!(limiter.acquire().is_err(), "the bucket holds no more than the burst");
    }

    #[tokio::test(start_paused = true)]
    async fn extreme_values_are_clamped() {
        for (burst, interval) in [(0, Duration::ZERO), (u32::MAX, Duration::MAX), (1, Duration::MAX)] {
            assert!(RateLimiter::new(burst, interval).acquire().is_ok(), "{burst} {interval:?}");
        }
        let limiter = RateLimiter::new(1, Duration::MAX);
        assert!(limiter.acquire().is_ok());
        assert!(limiter.acquire().unwrap_err() > Duration::from_hours(24 * 365));
    }
}
