//! What a person has joined that would otherwise be apart.

use std::collections::{BTreeMap, BTreeSet};

use crate::{AgentId, Name};

/// The key of a message's metadata under which a linked hub says who of other owners has it already: they read the same
/// channel along by a link of that hub.
pub const HEARD: &str = "switchboard.heard";

/// The links of a hub: forwards, members of teams from elsewhere, channels that a swarm reads along.
///
/// They are part of the [`crate::Directory`], so that addresses lead through them as through everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    forwards: BTreeMap<AgentId, AgentId>,
    members: BTreeMap<Name, BTreeSet<AgentId>>,
    channels: BTreeMap<Name, BTreeSet<Name>>,
}

/// Target of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTarget<'l> {
    /// One agent: mail is forwarded to it, or it is a member of a team.
    Agent(&'l AgentId),
    /// A swarm or hub: all of its agents read a channel.
    Realm(&'l Name),
}

/// Why a link cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Mail would go round for ever.
    #[error("mail for '{from}' would come back to it: {}", in_words(.way))]
    Circle {
        /// Whose mail.
        from: AgentId,
        /// The agents on the way, the first one again at the end.
        way: Vec<AgentId>,
    },
    /// Mail of one agent can go to one other.
    #[error("mail for '{from}' is forwarded to '{first}' already")]
    Twice {
        /// Whose mail.
        from: AgentId,
        /// Where it goes.
        first: AgentId,
    },
    /// The person's mail stays with the person.
    #[error("mail for the person is not forwarded")]
    Human,
}

fn in_words(way: &[AgentId]) -> String {
    way.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}

impl Links {
    /// Has the mail of one agent go to another instead.
    pub fn forward(&mut self, from: AgentId, to: AgentId) -> Result<(), LinkError> {
        if from.is_human() {
            return Err(LinkError::Human);
        }
        if let Some(first) = self.forwards.get(&from) {
            return Err(LinkError::Twice { from, first: first.clone() });
        }
        let mut way = vec![from.clone(), to.clone()];
        let mut next = Some(&to);
        while let Some(agent) = next {
            if *agent == from {
                return Err(LinkError::Circle { from, way });
            }
            next = self.forwards.get(agent);
            way.extend(next.cloned());
        }
        self.forwards.insert(from, to);
        Ok(())
    }

    /// Makes an agent a member of a team beside those that were assigned to it.
    pub fn include(&mut self, team: Name, agent: AgentId) {
        self.members.entry(team).or_default().insert(agent);
    }

    /// Has everyone of a realm read a channel along.
    pub fn join(&mut self, channel: Name, realm: Name) {
        self.channels.entry(channel).or_default().insert(realm);
    }

    /// Where the mail of an agent ends up: the last one that it is forwarded to. `None` where it stays.
    pub fn end_of(&self, agent: &AgentId) -> Option<&AgentId> {
        let mut end = self.forwards.get(agent)?;
        // `forward` lets no circle in.
        while let Some(next) = self.forwards.get(end) {
            end = next;
        }
        Some(end)
    }

    /// The members that a team has by a link.
    pub fn members(&self, team: &Name) -> impl Iterator<Item = &AgentId> {
        self.members.get(team).into_iter().flatten()
    }

    /// Whether a link makes this a team, though nobody has made it one here.
    pub fn has_team(&self, team: &Name) -> bool {
        self.members.contains_key(team)
    }

    /// The realms that read a channel along.
    pub fn realms(&self, channel: &Name) -> impl Iterator<Item = &Name> {
        self.channels.get(channel).into_iter().flatten()
    }

    /// The channels that a realm reads along: where what is said to all of that realm belongs.
    pub fn channels_of<'l>(&'l self, realm: &'l Name) -> impl Iterator<Item = &'l Name> {
        self.channels.iter().filter(move |(_, realms)| realms.contains(realm)).map(|(channel, _)| channel)
    }

    /// The teams that have members by a link.
    pub fn teams(&self) -> impl Iterator<Item = &Name> {
        self.members.keys()
    }

    /// The channels that a realm reads along.
    pub fn channels(&self) -> impl Iterator<Item = &Name> {
        self.channels.keys()
    }

    /// The targets of all links, each with the link, as the settings call it.
    pub fn targets(&self) -> impl Iterator<Item = (String, LinkTarget<'_>)> {
        let forwards = self.forwards.iter();
        let forwards = forwards.map(|(from, to)| (format!("links.forwards.{from}"), LinkTarget::Agent(to)));
        let members = self.members.iter().flat_map(|(team, agents)| {
            agents.iter().map(move |agent| (format!("links.teams.{team}"), LinkTarget::Agent(agent)))
        });
        let channels = self.channels.iter().flat_map(|(channel, realms)| {
            realms.iter().map(move |realm| (format!("links.channels.{channel}"), LinkTarget::Realm(realm)))
        });
        forwards.chain(members).chain(channels)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.forwards.is_empty() && self.members.is_empty() && self.channels.is_empty()
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
