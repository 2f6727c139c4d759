//! No storms: when a reply chain between agents is stopped.

use jiff::SignedDuration;

use crate::{AgentId, Hop, Message};

/// Where a conversation between agents, with no person in it, is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// Longest reply chain between agents.
    pub hops: usize,
    /// Most replies between one pair of agents within a minute, both directions together.
    pub pair_per_minute: u32,
    /// Most replies of an agent to itself within a minute.
    pub self_per_minute: u32,
    /// Most replies in one conversation since a person last spoke in it.
    pub thread: u32,
}

impl LoopLimits {
    /// The span in which replies of a pair are counted.
    pub const PAIR_WINDOW: SignedDuration = SignedDuration::from_mins(1);
}

impl Default for LoopLimits {
    /// Observed storms had 10 messages in 40 s and 30 in 2 minutes; useful exchanges stay below both. One of 17 agents
    /// had 398 messages overnight; twenty agents that each answer ten times are half of that.
    fn default() -> Self {
        Self { hops: 8, pair_per_minute: 10, self_per_minute: 3, thread: 200 }
    }
}

/// What the journal knows of the recent past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recent {
    /// Replies between sender and recipient, both directions, within [`LoopLimits::PAIR_WINDOW`].
    pub pair_replies: u32,
    /// Replies in the conversation since a person last spoke in it.
    pub thread_replies: u32,
}

/// Why a reply is not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The chain of replies is too long.
    #[error("the reply chain has {hops} hops between agents and its limit is {limit}")]
    Hops {
        /// How many messages of agents stand before this one in its chain.
        hops: usize,
        /// The limit.
        limit: usize,
    },
    /// The pair answers each other too often.
    #[error("{from} and {to} exchanged {count} replies within a minute and their limit is {limit}")]
    Pair {
        /// The sender.
        from: AgentId,
        /// The recipient.
        to: AgentId,
        /// Replies within the last minute, with this one.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// The conversation has gone on for too long without a person.
    #[error("the conversation has {count} replies since a person last spoke in it and its limit is {limit}")]
    Thread {
        /// Replies, with this one.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// An agent has written too much.
    #[error("{agent} wrote {count} messages within an hour and its budget is {budget}")]
    Messages {
        /// The agent.
        agent: AgentId,
        /// Messages within the last hour, with this one.
        count: u64,
        /// What it may write.
        budget: u64,
    },
    /// An agent has cost too much.
    #[error("{agent} used {tokens} tokens within a day and its budget is {budget}")]
    Tokens {
        /// The agent.
        agent: AgentId,
        /// Tokens within the last day, with this message.
        tokens: u64,
        /// What it may use.
        budget: u64,
    },
    /// Three or more agents answer each other in a circle, for a second round.
    #[error("the replies go round in a circle: {}", .agents.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → "))]
    Cycle {
        /// The circle, in order.
        agents: Vec<AgentId>,
    },
}

impl Stop {
    /// Whether an agent has used up its budget.
    pub fn is_of_a_budget(&self) -> bool {
        matches!(self, Self::Messages { .. } | Self::Tokens { .. })
    }

    /// Whether the agents may go on once the person has said something in the conversation.
    pub fn yields_to_a_word(&self) -> bool {
        matches!(self, Self::Hops { .. } | Self::Cycle { .. } | Self::Thread { .. })
    }
}

/// Whether a message may be delivered to `to`, as far as loops go.
///
/// Only replies are looked at: a script may hand out a thousand tasks at once, but an answer to an
/// answer to an answer is how storms begin. What the person writes is never stopped, provided it is
/// known to be the person, and what is written to the person ends the chain.
///
/// Names are compared as they are: the caller has put the canonical ones in place of aliases.
pub fn check_loops(message: &Message, to: &AgentId, recent: Recent, limits: LoopLimits) -> Result<(), Stop> {
    let by_person = message.from.is_human() && message.origin.verified;
    if message.in_reply_to.is_none() || by_person || to.is_human() {
        return Ok(());
    }
    let chain: Vec<&AgentId> = message.via.iter().filter_map(agent).collect();
    if chain.len() > limits.hops {
        return Err(Stop::Hops { hops: chain.len(), limit: limits.hops });
    }
    let count = recent.pair_replies.saturating_add(1);
    let limit = if &message.from == to { limits.self_per_minute } else { limits.pair_per_minute };
    if count > limit {
        return Err(Stop::Pair { from: message.from.clone(), to: to.clone(), count, limit });
    }
    let count = recent.thread_replies.saturating_add(1);
    if count > limits.thread {
        return Err(Stop::Thread { count, limit: limits.thread });
    }
    match second_round(&chain, &message.from, to) {
        Some(agents) => Err(Stop::Cycle { agents }),
        None => Ok(()),
    }
}

fn agent(hop: &Hop) -> Option<&AgentId> {
    match hop {
        Hop::Agent(agent) => Some(agent),
        Hop::Hub(_) => None,
    }
}

/// The circle of three or more that a further message `from → to` would begin again: the chain has
/// made that step before, and came back to `from` without passing anyone twice.
fn second_round(chain: &[&AgentId], from: &AgentId, to: &AgentId) -> Option<Vec<AgentId>> {
    let start = chain.windows(2).rposition(|step| step[0] == from && step[1] == to)?;
    let circle = &chain[start..];
    let distinct = circle.iter().enumerate().all(|(n, agent)| !circle[..n].contains(agent));
    (distinct && circle.len() >= 3).then(|| circle.iter().map(|agent| (*agent).clone()).collect())
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
