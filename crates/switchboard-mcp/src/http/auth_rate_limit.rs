//! Rate limit on requests with a wrong token: throttles a client that guesses.

use std::time::Duration;

use switchboard_http::RateLimiter;

/// Burst size: a client restarted with an old token retries a few times on each of its routes.
const BURST: u32 = 20;

/// Interval at which one more wrong token is allowed.
const REFILL_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limit on wrong tokens. Correct tokens are not counted and never delayed: all clients that can reach the port
/// share the limit, and none of them must be able to lock the user out.
///
/// The length of a token prevents guessing. The limit prevents a misconfigured client, or an attacker, from filling the
/// log and using up the CPU.
#[derive(Debug)]
pub(super) struct AuthRateLimit(RateLimiter);

impl AuthRateLimit {
    pub(super) fn new() -> Self {
        Self(RateLimiter::new(BURST, REFILL_INTERVAL))
    }

    /// Counts a wrong token. Beyond the limit, returns the seconds until the next one is allowed, rounded up.
    pub(super) fn record_failure(&self) -> Result<(), u64> {
        self.0.acquire().map_err(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
    }
}

#[cfg(test)]
#[path = "auth_rate_limit_tests.rs"]
mod tests;
