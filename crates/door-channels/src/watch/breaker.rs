//! When a watcher stops trying, and how often it answers the same agent.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use switchboard_core::AgentId;

/// So many failures …
const FAILURES: usize = 3;

/// … within this time …
const WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// … and the program is left alone for so long.
const REST: SignedDuration = SignedDuration::from_mins(10);

/// Counts failures and answers of one watcher.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: VecDeque<Timestamp>,
    rests_until: Option<Timestamp>,
    answers: HashMap<AgentId, VecDeque<Timestamp>>,
}

impl Breaker {
    /// How long the program is still left alone.
    pub(super) fn rest(&self, now: Timestamp) -> Option<SignedDuration> {
        self.rests_until.map(|until| until.duration_since(now)).filter(SignedDuration::is_positive)
    }

    /// Notes a failure; true where it was one too many.
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

    /// Notes that the program works, and need not be left alone. Its failures still count: one that fails every other time
    /// fails often enough.
    pub(super) fn worked(&mut self) {
        self.rests_until = None;
    }

    /// Notes that the person said something: who answers whom is counted anew.
    pub(super) fn person_spoke(&mut self) {
        self.answers.clear();
    }

    /// Whether this agent may be answered once more within a minute; if so, that is noted.
    ///
    /// The hub counts replies between two agents, but not those to a whole channel.
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
