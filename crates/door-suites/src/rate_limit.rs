//! Rate limit for calls of a suite.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Token bucket: holds `calls` tokens, each call takes one, and it refills within `per`.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    calls: f64,
    per: Duration,
    bucket: Mutex<(f64, Instant)>,
}

impl RateLimiter {
    /// Creates a full bucket. At least one call is allowed: disabling a suite is a separate setting.
    pub(crate) fn new(calls: u32, per: Duration) -> Self {
        let calls = f64::from(calls.max(1));
        Self { calls, per: per.max(Duration::from_millis(1)), bucket: Mutex::new((calls, Instant::now())) }
    }

    /// Takes a token, or returns the time until the next one. Does not wait: a model that gets the error can do
    /// something else in the meantime.
    pub(crate) fn try_acquire(&self) -> Result<(), Duration> {
        let mut bucket = self.bucket.lock();
        let now = Instant::now();
        let filled = now.duration_since(bucket.1).as_secs_f64() / self.per.as_secs_f64() * self.calls;
        let tokens = (bucket.0 + filled).min(self.calls);
        if tokens >= 1.0 {
            *bucket = (tokens - 1.0, now);
            return Ok(());
        }
        *bucket = (tokens, now);
        Err(self.per.mul_f64((1.0 - tokens) / self.calls))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RateLimiter;

    #[tokio::test(start_paused = true)]
    async fn burst_is_admitted_then_bucket_refills() {
        let limit = RateLimiter::new(3, Duration::from_secs(3));
        assert!((0..3).all(|_| limit.try_acquire().is_ok()));
        let wait = limit.try_acquire().unwrap_err();
        assert_eq!(wait.as_millis(), 1000);
        tokio::time::advance(wait).await;
        assert!(limit.try_acquire().is_ok());
        assert!(limit.try_acquire().is_err());
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!((0..3).all(|_| limit.try_acquire().is_ok()));
        assert!(limit.try_acquire().is_err(), "the bucket holds no more than its calls");
    }
}
