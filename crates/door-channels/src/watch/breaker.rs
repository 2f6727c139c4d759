//! Circuit breaker and rate limit of a watcher.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use switchboard_core::AgentId;

/// Number of failures within [`WINDOW`] that open the breaker.
const FAILURES: usize = 3;

/// Time window in which failures are counted.
const WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// How long the breaker stays open.
const REST: SignedDuration = SignedDuration::from_mins(10);

/// Circuit breaker and rate limit of one watcher.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: VecDeque<Timestamp>,
    rests_until: Option<Timestamp>,
    answers: HashMap<AgentId, VecDeque<Timestamp>>,
}

impl Breaker {
    /// Returns how much longer the breaker stays open; `None` if it is closed.
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

    /// Records a success and closes the breaker. Recent failures still count, so that a program that fails every other
    /// time opens the breaker as well.
    pub(super) fn worked(&mut self) {
        self.rests_until = None;
    }

    /// Records a message from the person, which resets the rate limits.
    pub(super) fn person_spoke(&mut self) {
        self.answers.clear();
    }

    /// Applies the rate limit to an answer; returns true and counts the answer if it is allowed.
    ///
    /// The hub limits replies between two agents, but not those to a whole channel, so the watcher limits the answers
    /// to each agent per minute.
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
