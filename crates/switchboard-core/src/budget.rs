//! No surprises on the bill: what an agent may write and use.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::{AgentId, Name, Stop};

/// What one agent may write and use. Nothing set is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Most messages that it may write within an hour.
    pub messages_per_hour: Option<u64>,
    /// Most tokens that it may use within a day.
    pub tokens_per_day: Option<u64>,
}

impl Budget {
    /// The span in which messages are counted.
    pub const HOUR: SignedDuration = SignedDuration::from_hours(1);
    /// The span in which tokens are counted.
    pub const DAY: SignedDuration = SignedDuration::from_hours(24);

    /// Whether there is anything to count.
    pub fn is_limited(self) -> bool {
        self != Self::default()
    }
}

/// The budgets of all agents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budgets {
    /// Of everyone who has none of their own.
    pub everyone: Budget,
    /// Of some, by name. What theirs does not say, they have from everyone's.
    pub agents: BTreeMap<Name, Budget>,
}

impl Budgets {
    /// Whether nobody has a limit, so that nothing need be counted.
    pub fn is_unlimited(&self) -> bool {
        !self.everyone.is_limited() && self.agents.is_empty()
    }

    /// The budget of an agent. The person has none, and neither have agents elsewhere: their own hub counts for them.
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

/// What an agent has written and used within the spans of a [`Budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Messages within the last hour.
    pub messages: u64,
    /// Tokens within the last day.
    pub tokens: u64,
}

/// How many tokens a text is worth. Four bytes each is what models take for English and for code, near enough for a
/// limit.
pub fn tokens_of(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX).div_ceil(4)
}

/// Whether an agent may spend as much in all.
pub fn check_budget(agent: &AgentId, spent: Spent, budget: Budget) -> Result<(), Stop> {
    if let Some(budget) = budget.messages_per_hour.filter(|budget| spent.messages > *budget) {
        return Err(Stop::Messages { agent: agent.clone(), count: spent.messages, budget });
    }
    if let Some(budget) = budget.tokens_per_day.filter(|budget| spent.tokens > *budget) {
        return Err(Stop::Tokens { agent: agent.clone(), tokens: spent.tokens, budget });
    }
    Ok(())
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
