//! Rate limit on requests with a wrong token.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Burst size: a client restarted with an old token retries a few times on each of its routes.
const BURST: u32 = 20;

/// Time after which one more wrong token is answered normally.
const REFILL_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limit on wrong tokens. Correct tokens are not counted and never delayed: all clients that can reach the port
/// share the limit, and none of them must be able to lock the user out.
///
/// The length of a token prevents guessing. The limit prevents a misconfigured client, or an attacker, from filling the
/// log and using up the CPU.
#[derive(Debug)]
pub(super) struct AuthRateLimit {
    /// When all wrong tokens so far are forgotten.
    drained: Mutex<Instant>,
}

impl AuthRateLimit {
    pub(super) fn new() -> Self {
        Self { drained: Mutex::new(Instant::now()) }
    }

    /// Counts a wrong token. Beyond the limit, returns the seconds until the next one is accepted.
    pub(super) fn record_failure(&self) -> Result<(), u64> {
        let now = Instant::now();
        let mut drained = self.drained.lock();
        let next = (*drained).max(now) + REFILL_INTERVAL;
        let over = (next - now).saturating_sub(REFILL_INTERVAL * BURST);
        if over.is_zero() {
            *drained = next;
            Ok(())
        } else {
            Err(over.as_secs() + u64::from(over.subsec_nanos() > 0))
        }
    }
}

#[cfg(test)]
#[path = "auth_rate_limit_tests.rs"]
mod tests;
