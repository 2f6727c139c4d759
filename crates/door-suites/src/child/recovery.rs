//! When a child that failed may be started again. Time and chance are arguments.

use std::time::Duration;

use tokio::time::Instant;

use super::shared::RecoveryRules;

/// What is remembered of failures.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Failed starts in a row, and ends that nobody asked for soon after a start.
    failures: u32,
    /// Failed starts in a row alone: these open the circuit.
    failed_starts: u32,
    /// No start before.
    until: Option<Instant>,
    reason: String,
}

/// Whether a child may be started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// After this wait, which may be nothing.
    After(Duration),
    /// Not now.
    Shut { failures: u32, retry_in: Duration },
    /// Once, to see whether it is well again; nobody else has to wait for that.
    Probe,
}

impl Recovery {
    /// Whether a start may begin now.
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

    /// A start failed.
    pub(super) fn start_failed(&mut self, rules: &RecoveryRules, now: Instant, chance: f64, reason: String) {
        self.failed_starts += 1;
        self.failures += 1;
        self.reason = reason;
        let is_open = self.failed_starts >= rules.failures;
        let wait = if is_open { rules.open } else { back_off(rules, self.failures, chance) };
        self.until = Some(now + wait);
    }

    /// A start succeeded.
    pub(super) fn started(&mut self) {
        self.failed_starts = 0;
        self.until = None;
    }

    /// A child that ran for so long ended without having been asked to.
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
        self.until = Some(now + back_off(rules, self.failures, chance));
    }

    /// Until when it is left alone, and why.
    pub(super) fn waits(&self, now: Instant) -> Option<(Duration, &str)> {
        let wait = self.until?.saturating_duration_since(now);
        (!wait.is_zero()).then_some((wait, self.reason.as_str()))
    }

    /// How many starts failed in a row.
    pub(super) fn failed_starts(&self) -> u32 {
        self.failed_starts
    }

    /// What went wrong last; empty when nothing did.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

/// Twice as long with each failure; half of it is left to chance, so that children that failed together do not
/// all come back at once.
fn back_off(rules: &RecoveryRules, failures: u32, chance: f64) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    let longest = rules.first.saturating_mul(factor).min(rules.most);
    longest.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
