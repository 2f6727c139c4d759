//! Loop limits: circuit breakers for reply chains between agents (message storms).

use jiff::SignedDuration;

use crate::{AgentId, Hop, Message};

/// Loop limits of a conversation between agents without a person; each one is a circuit breaker.
#[doc(alias = "circuit breaker")]
#[doc(alias = "rate limit")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// Maximum length of a reply chain between agents.
    pub hops: usize,
    /// Maximum number of replies per minute between two agents, both directions together.
    pub pair_per_minute: u32,
    /// Maximum number of replies per minute of an agent to itself.
    pub self_per_minute: u32,
    /// Maximum number of replies in one conversation since a person last wrote in it.
    pub thread: u32,
}

impl LoopLimits {
    /// Time window in which the replies of a pair are counted.
    pub const PAIR_WINDOW: SignedDuration = SignedDuration::from_mins(1);
}

impl Default for LoopLimits {
    /// Returns limits that are derived from observed message storms.
    ///
    /// Storms had 10 messages in 40 s and 30 in 2 minutes; useful exchanges stay below both rates. In one night, one of
    /// 17 agents had 398 messages; twenty agents that each answer ten times have half of that.
    fn default() -> Self {
        Self { hops: 8, pair_per_minute: 10, self_per_minute: 3, thread: 200 }
    }
}

/// Numbers of recent replies, as counted from the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecentReplies {
    /// Number of replies between sender and recipient, in both directions, within [`LoopLimits::PAIR_WINDOW`].
    pub pair_replies: u32,
    /// Number of replies in the conversation since a person last wrote in it.
    pub thread_replies: u32,
}

/// Reason why a circuit breaker tripped, so that a message is not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TripReason {
    /// The chain of replies is too long.
    #[error("the reply chain has {hops} hops between agents and its limit is {limit}")]
    Hops {
        /// Number of earlier messages of agents in the chain.
        hops: usize,
        /// The limit.
        limit: usize,
    },
    /// Two agents answer each other too often.
    #[error("{from} and {to} exchanged {count} replies within a minute and their limit is {limit}")]
    Pair {
        /// The sender.
        from: AgentId,
        /// The recipient.
        to: AgentId,
        /// Number of replies within the last minute, including this one.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// The conversation has too many replies without a person.
    #[error("the conversation has {count} replies since a person last spoke in it and its limit is {limit}")]
    Thread {
        /// Number of replies since a person last wrote, including this one.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// An agent exceeded its message budget.
    #[error("{agent} wrote {count} messages within an hour and its budget is {budget}")]
    Messages {
        /// The agent.
        agent: AgentId,
        /// Number of messages within the last hour, including this one.
        count: u64,
        /// The agent's budget of messages per hour.
        budget: u64,
    },
    /// An agent exceeded its token budget.
    #[error("{agent} used {tokens} tokens within a day and its budget is {budget}")]
    Tokens {
        /// The agent.
        agent: AgentId,
        /// Number of tokens within the last day, including those of this message.
        tokens: u64,
        /// The agent's budget of tokens per day.
        budget: u64,
    },
    /// Three or more agents answer each other in a cycle, for the second time.
    #[error("the replies form a loop: {}", .agents.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → "))]
    Cycle {
        /// The agents of the cycle, in order.
        agents: Vec<AgentId>,
    },
}

impl TripReason {
    /// Returns true if an agent exceeded its budget.
    pub fn is_budget(&self) -> bool {
        matches!(self, Self::Messages { .. } | Self::Tokens { .. })
    }

    /// Returns true if the breaker resets once the person writes in the conversation.
    pub fn is_reset_by_human(&self) -> bool {
        matches!(self, Self::Hops { .. } | Self::Cycle { .. } | Self::Thread { .. })
    }
}

/// Checks the loop limits (circuit breakers) for the delivery of a message to `to`.
///
/// Only replies count: a script may send a thousand tasks at once, but an answer to an answer to an answer is how
/// storms start. A message that is verifiably from the person is always allowed, and a message to the person ends the
/// chain.
///
/// Names are compared as they are, because the caller has already replaced aliases by canonical names.
pub fn check_loops(
    message: &Message,
    to: &AgentId,
    recent: RecentReplies,
    limits: LoopLimits,
) -> Result<(), TripReason> {
    let by_person = message.from.is_human() && message.origin.verified;
    if message.in_reply_to.is_none() || by_person || to.is_human() {
        return Ok(());
    }
    let chain: Vec<&AgentId> = message.via.iter().filter_map(agent).collect();
    if chain.len() > limits.hops {
        return Err(TripReason::Hops { hops: chain.len(), limit: limits.hops });
    }
    let count = recent.pair_replies.saturating_add(1);
    let limit = if &message.from == to { limits.self_per_minute } else { limits.pair_per_minute };
    if count > limit {
        return Err(TripReason::Pair { from: message.from.clone(), to: to.clone(), count, limit });
    }
    let count = recent.thread_replies.saturating_add(1);
    if count > limits.thread {
        return Err(TripReason::Thread { count, limit: limits.thread });
    }
    match find_repeated_cycle(&chain, &message.from, to) {
        Some(agents) => Err(TripReason::Cycle { agents }),
        None => Ok(()),
    }
}

fn agent(hop: &Hop) -> Option<&AgentId> {
    match hop {
        Hop::Agent(agent) => Some(agent),
        Hop::Hub(_) => None,
    }
}

/// Finds the cycle of three or more agents that the message `from → to` would start for the second time.
///
/// The chain already contains that step and returned to `from` without a repeated agent.
fn find_repeated_cycle(chain: &[&AgentId], from: &AgentId, to: &AgentId) -> Option<Vec<AgentId>> {
    let start = chain.windows(2).rposition(|step| step[0] == from && step[1] == to)?;
    let cycle = &chain[start..];
    let distinct = cycle.iter().enumerate().all(|(n, agent)| !cycle[..n].contains(agent));
    (distinct && cycle.len() >= 3).then(|| cycle.iter().map(|agent| (*agent).clone()).collect())
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
