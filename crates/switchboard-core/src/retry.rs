//! What follows a delivery attempt.

use jiff::{SignedDuration, Timestamp};

use crate::DeliveryState;

/// How a delivery attempt ended. Failure is data here, not an error: the outbox acts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The far side has it.
    Delivered,
    /// The far side has it, and is itself what was to be shown it: an agent that has taken it as its prompt.
    Shown,
    /// The far side said no; asking again would not help.
    Refused {
        /// Why, for the sender.
        reason: String,
    },
    /// The far side could not be reached, or could not take it now.
    Unreachable {
        /// Why, for the sender.
        reason: String,
    },
    /// It was not tried: others have to get there before it. That is no attempt, and whoever gets those there hurries it.
    Behind {
        /// Why, for the sender.
        reason: String,
    },
    /// The door ended before it knew: the delivery goes back to the queue, as if it had not been taken.
    Released,
}

/// How often a delivery goes back to the queue at once. One that is released more often has a door that drops it without a
/// word, and is retried with backoff.
const RELEASES: u32 = 3;

/// How long what waits behind others waits at most before it is looked at again, should nobody hurry it.
const BEHIND: SignedDuration = SignedDuration::from_mins(5);

/// How attempts are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The pause after the first failure; it doubles with each further one.
    pub first: SignedDuration,
    /// The longest pause.
    pub longest: SignedDuration,
    /// How long after it was accepted a message without an expiry of its own is given up.
    pub give_up_after: SignedDuration,
}

impl Default for RetryPolicy {
    /// A second for a passing fault, a quarter of an hour for a peer that is down, a week for one that
    /// went on holiday.
    fn default() -> Self {
        Self {
            first: SignedDuration::from_secs(1),
            longest: SignedDuration::from_mins(15),
            give_up_after: SignedDuration::from_hours(7 * 24),
        }
    }
}

/// The state a delivery has after its `attempts`-th attempt (counted from 1).
///
/// `jitter` lies in `0.0..1.0` and spreads the retries of many deliveries over half a pause, so that
/// a peer that comes back is not met by all of them at once.
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
        Outcome::Released if attempts <= RELEASES => DeliveryState::Queued,
        Outcome::Released | Outcome::Unreachable { .. } | Outcome::Behind { .. } => {
            let last_chance = expires_at.or_else(|| accepted_at.checked_add(policy.give_up_after).ok());
            let pause = match outcome {
                Outcome::Behind { .. } => spread(BEHIND.min(policy.longest), jitter),
                _ => pause(attempts, jitter, policy),
            };
            let retry_at = now.saturating_add(pause).unwrap_or(now);
            match last_chance {
                Some(last) if retry_at >= last => last_attempt(now, last, policy),
                _ => DeliveryState::Failed { retry_at },
            }
        }
    }
}

/// One more attempt shortly before the end, where there is time for one.
fn last_attempt(now: Timestamp, last: Timestamp, policy: RetryPolicy) -> DeliveryState {
    match last.checked_sub(policy.first) {
        Ok(retry_at) if retry_at > now => DeliveryState::Failed { retry_at },
        _ => DeliveryState::Expired,
    }
}

fn pause(attempts: u32, jitter: f64, policy: RetryPolicy) -> SignedDuration {
    // 2^30 first pauses of a millisecond are twelve days, far beyond any longest pause.
    let doublings = attempts.saturating_sub(1).min(30);
    spread(policy.first.saturating_mul(1 << doublings).min(policy.longest), jitter)
}

fn spread(full: SignedDuration, jitter: f64) -> SignedDuration {
    let half = full / 2;
    half + half.mul_f64(jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
