//! Restart policy: exponential backoff and circuit breaker.
//!
//! Time and randomness are passed as arguments.

use std::time::Duration;

use tokio::time::Instant;

use super::shared::RecoveryRules;

/// Failure history of a child.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Consecutive failed starts and early crashes, which determine the backoff.
    failures: u32,
    /// Consecutive failed starts; enough of them open the circuit breaker.
    failed_starts: u32,
    /// Earliest time of the next start; `None` if no backoff applies.
    until: Option<Instant>,
    reason: String,
}

/// Decision on whether a child may be started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Start after this delay, which is zero if there is no backoff.
    After(Duration),
    /// The circuit breaker is open: do not start.
    Shut { failures: u32, retry_in: Duration },
    /// The circuit breaker is half-open: make one trial start, and reject other callers meanwhile.
    Probe,
}

impl Recovery {
    /// Decides whether a start is allowed now.
    pub(super) fn gate(&self, rules: &RecoveryRules, now: Instant) -> Gate {
        let wait = self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if self.failed_starts < rules.failures {
            Gate::After(wait)
        } else if wait.is_zero() {
            Gate::Probe
        } else {
            Gate::Shut { failures: self.failed_starts, retry_in: wait }
        }
    }

    /// Records a failed start.
    pub(super) fn start_failed(&mut self, rules: &RecoveryRules, now: Instant, chance: f64, reason: String) {
        self.failed_starts += 1;
        self.failures += 1;
        self.reason = reason;
        let is_open = self.failed_starts >= rules.failures;
        let wait = if is_open { rules.open } else { backoff(rules, self.failures, chance) };
        self.until = Some(now + wait);
    }

    /// Records a successful start.
    pub(super) fn started(&mut self) {
        self.failed_starts = 0;
        self.until = None;
    }

    /// Records a crash after an uptime of `ran`.
    pub(super) fn crashed(
        &mut self,
        rules: &RecoveryRules,
        now: Instant,
        ran: Duration,
        chance: f64,
        reason: String,
    ) {
        self.failures = if ran >= rules.healthy { 1 } else { self.failures + 1 };
        self.reason = reason;
        self.until = Some(now + backoff(rules, self.failures, chance));
    }

    /// Returns the remaining backoff and its cause, if the child is in backoff.
    pub(super) fn waits(&self, now: Instant) -> Option<(Duration, &str)> {
        let wait = self.until?.saturating_duration_since(now);
        (!wait.is_zero()).then_some((wait, self.reason.as_str()))
    }

    /// Returns the number of consecutive failed starts.
    pub(super) fn failed_starts(&self) -> u32 {
        self.failed_starts
    }

    /// Returns the cause of the last failure; empty if there was none.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

/// Computes the backoff, which doubles with each failure up to the maximum. Jitter reduces it by up to half.
///
/// The jitter prevents children that failed together from restarting at the same time.
fn backoff(rules: &RecoveryRules, failures: u32, chance: f64) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    let longest = rules.first.saturating_mul(factor).min(rules.most);
    longest.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
