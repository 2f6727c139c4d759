//! Retry policy: the state of a delivery after an attempt, with exponential backoff and jitter.

use jiff::{SignedDuration, Timestamp};

use crate::DeliveryState;

/// Outcome of a delivery attempt. A failure is data, not an error: the outbox acts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiving side has the message.
    Delivered,
    /// The receiving side has the message and showed it to the recipient.
    ///
    /// An example is an agent that got the message as its prompt.
    Shown,
    /// The receiving side refused the message; a retry would not help.
    Refused {
        /// Reason for the sender.
        reason: String,
    },
    /// The receiving side could not be reached, or could not accept the message at this time.
    Unreachable {
        /// Reason for the sender.
        reason: String,
    },
    /// The delivery was not attempted, because earlier deliveries to the same target come first.
    ///
    /// A blocked delivery does not count as an attempt. Delivery of the earlier ones triggers the next try.
    Blocked {
        /// Reason for the sender.
        reason: String,
    },
    /// The door stopped before the outcome was known, so the delivery is redelivered.
    ///
    /// The delivery returns to the queue as if it had not been leased.
    Released,
}

/// Number of times that a released delivery is queued for redelivery at once.
///
/// After that, its door seems to drop the delivery silently, so the delivery is retried with backoff.
const MAX_RELEASES: u32 = 3;

/// Maximum delay of a blocked delivery, in case the earlier deliveries do not trigger it.
const BLOCKED_DELAY: SignedDuration = SignedDuration::from_mins(5);

/// Retry policy: exponential backoff between delivery attempts, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Delay after the first failure. The delay doubles with each further failure.
    pub first: SignedDuration,
    /// Maximum delay between two attempts.
    pub longest: SignedDuration,
    /// Time after acceptance at which delivery is given up, for a message without an expiry of its own.
    pub give_up_after: SignedDuration,
}

impl Default for RetryPolicy {
    /// Returns delays of 1 s to 15 min, and a week until the hub gives up.
    ///
    /// One second suits a transient fault, a quarter of an hour a peer that is down, and a week a machine that is off
    /// during a holiday.
    fn default() -> Self {
        Self {
            first: SignedDuration::from_secs(1),
            longest: SignedDuration::from_mins(15),
            give_up_after: SignedDuration::from_hours(7 * 24),
        }
    }
}

/// Returns the state of a delivery after its `attempts`-th attempt (counted from 1).
///
/// A failed attempt is retried with exponential backoff. `jitter` is in `0.0..1.0` and spreads the retries of many
/// deliveries over half a delay, so that they do not all reach a recovered peer at once.
pub fn after_attempt(
    outcome: &Outcome,
    attempts: u32,
    accepted_at: Timestamp,
    expires_at: Option<Timestamp>,
    now: Timestamp,
    jitter: f64,
    policy: RetryPolicy,
) -> DeliveryState {
    match outcome {
        Outcome::Delivered => DeliveryState::Delivered,
        Outcome::Shown => DeliveryState::Seen,
        Outcome::Refused { .. } => DeliveryState::Refused,
        Outcome::Released if attempts <= MAX_RELEASES => DeliveryState::Queued,
        Outcome::Released | Outcome::Unreachable { .. } | Outcome::Blocked { .. } => {
            let last_chance = expires_at.or_else(|| accepted_at.checked_add(policy.give_up_after).ok());
            let backoff = match outcome {
                Outcome::Blocked { .. } => add_jitter(BLOCKED_DELAY.min(policy.longest), jitter),
                _ => backoff(attempts, jitter, policy),
            };
            let retry_at = now.saturating_add(backoff).unwrap_or(now);
            match last_chance {
                Some(last) if retry_at >= last => last_attempt(now, last, policy),
                _ => DeliveryState::Failed { retry_at },
            }
        }
    }
}

/// Schedules one more attempt shortly before the deadline, if there is time for one.
fn last_attempt(now: Timestamp, last: Timestamp, policy: RetryPolicy) -> DeliveryState {
    match last.checked_sub(policy.first) {
        Ok(retry_at) if retry_at > now => DeliveryState::Failed { retry_at },
        _ => DeliveryState::Expired,
    }
}

fn backoff(attempts: u32, jitter: f64, policy: RetryPolicy) -> SignedDuration {
    // The limit prevents an overflow: even if the first delay is 1 ms, 2^30 of them are twelve days, far beyond any
    // maximum delay.
    let doublings = attempts.saturating_sub(1).min(30);
    add_jitter(policy.first.saturating_mul(1 << doublings).min(policy.longest), jitter)
}

fn add_jitter(full: SignedDuration, jitter: f64) -> SignedDuration {
    let half = full / 2;
    half + half.mul_f64(jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
