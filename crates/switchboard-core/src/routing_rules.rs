//! Routing rules of the user's settings: forwards, extra team members and channel subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use crate::{AgentId, Name};

/// Metadata key that lists agents of other owners to whom a linked hub already delivered the message.
///
/// A routing rule of that hub subscribes these agents to the same channel.
pub const RECEIVED_BY: &str = "switchboard.heard";

/// Routing rules of a hub: the section `links` of the settings.
///
/// The rules are mail forwards, remote team members, and channels to which the agents of a realm are subscribed. They
/// are part of the [`crate::Directory`], so that [`crate::resolve`] applies them to every address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutingRules {
    forwards: BTreeMap<AgentId, AgentId>,
    members: BTreeMap<Name, BTreeSet<AgentId>>,
    channels: BTreeMap<Name, BTreeSet<Name>>,
}

/// Target of a routing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleTarget<'l> {
    /// One agent: the target of a forward, or a team member.
    Agent(&'l AgentId),
    /// A swarm or hub, all of whose agents are subscribed to a channel.
    Realm(&'l Name),
}

/// Error of adding a forward.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Mail would be forwarded in a loop.
    #[error("the forwards of '{from}' form a loop: {}", format_path(.path))]
    Loop {
        /// Agent whose mail is forwarded.
        from: AgentId,
        /// The agents of the loop; the first one is repeated at the end.
        path: Vec<AgentId>,
    },
    /// The mail of this agent is already forwarded.
    #[error("mail for '{from}' is already forwarded to '{first}'")]
    AlreadyForwarded {
        /// Agent whose mail is forwarded.
        from: AgentId,
        /// The agent to which the mail is already forwarded.
        first: AgentId,
    },
    /// The mail of the person is never forwarded.
    #[error("mail for the person cannot be forwarded")]
    Human,
}

fn format_path(path: &[AgentId]) -> String {
    path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}

impl RoutingRules {
    /// Forwards the mail of one agent to another.
    pub fn forward(&mut self, from: AgentId, to: AgentId) -> Result<(), ForwardError> {
        if from.is_human() {
            return Err(ForwardError::Human);
        }
        if let Some(first) = self.forwards.get(&from) {
            return Err(ForwardError::AlreadyForwarded { from, first: first.clone() });
        }
        let mut path = vec![from.clone(), to.clone()];
        let mut next = Some(&to);
        while let Some(agent) = next {
            if *agent == from {
                return Err(ForwardError::Loop { from, path });
            }
            next = self.forwards.get(agent);
            path.extend(next.cloned());
        }
        self.forwards.insert(from, to);
        Ok(())
    }

    /// Adds an agent to a team, in addition to the members that are assigned to it.
    pub fn add_member(&mut self, team: Name, agent: AgentId) {
        self.members.entry(team).or_default().insert(agent);
    }

    /// Subscribes all agents of a realm to a channel.
    pub fn subscribe(&mut self, channel: Name, realm: Name) {
        self.channels.entry(channel).or_default().insert(realm);
    }

    /// Returns the final target of an agent's forwards, or `None` if its mail is not forwarded.
    pub fn forward_target(&self, agent: &AgentId) -> Option<&AgentId> {
        let mut end = self.forwards.get(agent)?;
        // The loop terminates, because `forward` rejects cycles.
        while let Some(next) = self.forwards.get(end) {
            end = next;
        }
        Some(end)
    }

    /// Returns the members that rules add to a team.
    pub fn members(&self, team: &Name) -> impl Iterator<Item = &AgentId> {
        self.members.get(team).into_iter().flatten()
    }

    /// Returns true if a rule adds members to this team, which need not exist in the directory.
    pub fn has_team(&self, team: &Name) -> bool {
        self.members.contains_key(team)
    }

    /// Returns the realms that are subscribed to a channel.
    pub fn subscribers(&self, channel: &Name) -> impl Iterator<Item = &Name> {
        self.channels.get(channel).into_iter().flatten()
    }

    /// Returns the channels that a realm is subscribed to. A message to all agents of the realm is posted in these
    /// channels.
    pub fn subscriptions_of<'l>(&'l self, realm: &'l Name) -> impl Iterator<Item = &'l Name> {
        self.channels.iter().filter(move |(_, realms)| realms.contains(realm)).map(|(channel, _)| channel)
    }

    /// Returns the teams to which rules add members.
    pub fn teams(&self) -> impl Iterator<Item = &Name> {
        self.members.keys()
    }

    /// Returns the channels that realms are subscribed to.
    pub fn channels(&self) -> impl Iterator<Item = &Name> {
        self.channels.keys()
    }

    /// Returns the targets of all rules, each with the rule's key in the settings.
    pub fn targets(&self) -> impl Iterator<Item = (String, RuleTarget<'_>)> {
        let forwards = self.forwards.iter();
        let forwards = forwards.map(|(from, to)| (format!("links.forwards.{from}"), RuleTarget::Agent(to)));
        let members = self.members.iter().flat_map(|(team, agents)| {
            agents.iter().map(move |agent| (format!("links.teams.{team}"), RuleTarget::Agent(agent)))
        });
        let channels = self.channels.iter().flat_map(|(channel, realms)| {
            realms.iter().map(move |realm| (format!("links.channels.{channel}"), RuleTarget::Realm(realm)))
        });
        forwards.chain(members).chain(channels)
    }

    /// Returns true if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.forwards.is_empty() && self.members.is_empty() && self.channels.is_empty()
    }
}

#[cfg(test)]
#[path = "routing_rules_tests.rs"]
mod tests;
