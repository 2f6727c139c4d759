//! A limit on wrong tokens.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many wrong tokens in a row are just answered: a client that was restarted with an old token tries a
/// few times on each of its routes.
const BURST: u32 = 20;

/// After how long one more is.
const REFILL_INTERVAL: Duration = Duration::from_secs(1);

/// Counts wrong tokens. Right ones are not counted and never wait: everybody who can reach the port shares
/// this limit, and none of them must be able to lock the user out.
///
/// What keeps a token from being guessed is its length. The limit keeps a misled client, or an attacker,
/// from filling the log and the processor.
#[derive(Debug)]
pub(super) struct AuthRateLimit {
    /// When all wrong tokens so far will have been forgotten.
    drained: Mutex<Instant>,
}

impl AuthRateLimit {
    pub(super) fn new() -> Self {
        Self { drained: Mutex::new(Instant::now()) }
    }

    /// Counts one more. When it is one too many, says after how many seconds the next is looked at.
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
