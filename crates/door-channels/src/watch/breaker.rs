//! Circuit breaker and rate limit of a watcher.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use switchboard_core::AgentId;

/// Failures that open the breaker …
const FAILURES: usize = 3;

/// … within this time …
const WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// … for so long.
const REST: SignedDuration = SignedDuration::from_mins(10);

/// Failures and answers of one watcher.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: VecDeque<Timestamp>,
    rests_until: Option<Timestamp>,
    answers: HashMap<AgentId, VecDeque<Timestamp>>,
}

impl Breaker {
    /// Returns how long the breaker stays open.
    pub(super) fn rest(&self, now: Timestamp) -> Option<SignedDuration> {
        self.rests_until.map(|until| until.duration_since(now)).filter(SignedDuration::is_positive)
    }

    /// Records a failure; returns true if it opens the breaker.
    pub(super) fn failed(&mut self, now: Timestamp) -> bool {
        self.failures.retain(|at| now.duration_since(*at) < WINDOW);
        self.failures.push_back(now);
        let is_enough = self.failures.len() >= FAILURES;
        if is_enough {
            self.failures.clear();
            self.rests_until = now.checked_add(REST).ok();
        }
        is_enough
    }

    /// Records a success and closes the breaker. Recent failures still count: a program that fails every
    /// other time fails often enough.
    pub(super) fn worked(&mut self) {
        self.rests_until = None;
    }

    /// Records a message of the person, which resets the rate limits.
    pub(super) fn person_spoke(&mut self) {
        self.answers.clear();
    }

    /// Returns true and counts the answer if this agent may be answered once more within a minute.
    ///
    /// The hub limits replies between two agents, but not those to a whole channel.
    pub(super) fn may_answer(&mut self, agent: &AgentId, per_minute: u32, now: Timestamp) -> bool {
        let recent = self.answers.entry(agent.clone()).or_default();
        recent.retain(|at| now.duration_since(*at) < SignedDuration::from_mins(1));
        let may = recent.len() < usize::try_from(per_minute).unwrap_or(usize::MAX);
        if may {
            recent.push_back(now);
        }
        may
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
