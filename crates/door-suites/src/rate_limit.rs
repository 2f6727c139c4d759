//! How many calls a suite takes.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A bucket of tokens: it holds `calls`, one is taken by each call, and it fills up again within `per`.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    calls: f64,
    per: Duration,
    bucket: Mutex<(f64, Instant)>,
}

impl RateLimiter {
    /// A full bucket. No calls at all would be a suite switched off, which has a setting of its own.
    pub(crate) fn new(calls: u32, per: Duration) -> Self {
        let calls = f64::from(calls.max(1));
        Self { calls, per: per.max(Duration::from_millis(1)), bucket: Mutex::new((calls, Instant::now())) }
    }

    /// Takes a token, or says how long it takes until there is one. Nobody waits here: a model that is told can
    /// do something else meanwhile.
    pub(crate) fn take(&self) -> Result<(), Duration> {
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
    async fn a_burst_is_taken_then_calls_come_back_with_time() {
        let limit = RateLimiter::new(3, Duration::from_secs(3));
        assert!((0..3).all(|_| limit.take().is_ok()));
        let wait = limit.take().unwrap_err();
        assert_eq!(wait.as_millis(), 1000);
        tokio::time::advance(wait).await;
        assert!(limit.take().is_ok());
        assert!(limit.take().is_err());
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!((0..3).all(|_| limit.take().is_ok()));
        assert!(limit.take().is_err(), "the bucket holds no more than its calls");
    }
}
