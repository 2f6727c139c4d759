//! Budgets: rate limits on the messages and tokens of an agent.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::{AgentId, Name, TripReason};

/// Budget (rate limits) of one agent; a limit of `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Maximum number of messages that the agent may write per hour.
    pub messages_per_hour: Option<u64>,
    /// Maximum number of tokens that the agent may use per day.
    pub tokens_per_day: Option<u64>,
}

impl Budget {
    /// Time window in which messages are counted.
    pub const HOUR: SignedDuration = SignedDuration::from_hours(1);
    /// Time window in which tokens are counted.
    pub const DAY: SignedDuration = SignedDuration::from_hours(24);

    /// Returns true if at least one limit is set.
    pub fn is_limited(self) -> bool {
        self != Self::default()
    }
}

/// Budgets of all agents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budgets {
    /// Default budget of an agent.
    pub everyone: Budget,
    /// Budgets of single agents. A limit that is not set there falls back to the default.
    pub agents: BTreeMap<Name, Budget>,
}

impl Budgets {
    /// Returns true if no agent has a limit, so that usage need not be counted.
    pub fn is_unlimited(&self) -> bool {
        !self.everyone.is_limited() && self.agents.is_empty()
    }

    /// Returns the budget of an agent.
    ///
    /// The person is unlimited. Remote agents are unlimited too, because their own hubs enforce their budgets.
    pub fn of(&self, agent: &AgentId) -> Budget {
        if agent.is_human() || agent.realm.is_some() {
            return Budget::default();
        }
        let own = self.agents.get(&agent.name).copied().unwrap_or_default();
        Budget {
            messages_per_hour: own.messages_per_hour.or(self.everyone.messages_per_hour),
            tokens_per_day: own.tokens_per_day.or(self.everyone.tokens_per_day),
        }
    }
}

/// Usage of an agent within the time windows of a [`Budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Number of messages within the last hour.
    pub messages: u64,
    /// Number of tokens within the last day.
    pub tokens: u64,
}

/// Estimates the number of tokens of a text.
///
/// The estimate is four bytes per token, which is typical for English and code and accurate enough for a limit.
pub fn estimate_tokens(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX).div_ceil(4)
}

/// Checks the usage of an agent against its budget (rate limit).
pub fn check_budget(agent: &AgentId, spent: Usage, budget: Budget) -> Result<(), TripReason> {
    if let Some(budget) = budget.messages_per_hour.filter(|budget| spent.messages > *budget) {
        return Err(TripReason::Messages { agent: agent.clone(), count: spent.messages, budget });
    }
    if let Some(budget) = budget.tokens_per_day.filter(|budget| spent.tokens > *budget) {
        return Err(TripReason::Tokens { agent: agent.clone(), tokens: spent.tokens, budget });
    }
    Ok(())
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
