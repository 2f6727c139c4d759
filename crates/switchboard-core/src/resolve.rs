//! Address resolution: from an address to agents.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    Address, AgentId, AgentRecord, Directory, GroupId, HUMAN, Name, NodeId, RuleTarget, suggest_similar,
};

/// Error of resolving an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No agent has this name.
    #[error("no agent is named '{agent}'")]
    UnknownAgent {
        /// The name in the address.
        agent: AgentId,
        /// Similar known names, best first.
        near: Vec<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// The agent was removed and its name is unused.
    ///
    /// Only a caller that records removals can return this variant.
    #[error("'{agent}' was removed at {at:.0}, and no agent has this name now")]
    Retired {
        /// The name in the address.
        agent: AgentId,
        /// When the agent was removed.
        at: Timestamp,
    },
    /// A routing rule of the settings names an unknown agent.
    #[error("no agent is named '{agent}', to which {link} points")]
    UnknownRuleTarget {
        /// The name in the rule.
        agent: AgentId,
        /// Key of the rule in the settings.
        link: String,
        /// Similar known names, best first.
        near: Vec<String>,
    },
    /// A routing rule of the settings names an unknown swarm or hub.
    #[error("{link} points to '{realm}', but no swarm or hub of that name is known")]
    UnknownRealm {
        /// The swarm or hub.
        realm: Name,
        /// Key of the rule in the settings.
        link: String,
    },
    /// No team has this name.
    #[error("no team is named '{team}'")]
    UnknownTeam {
        /// The name in the address.
        team: Name,
        /// Similar known names, best first.
        near: Vec<String>,
    },
    /// The node is not running.
    #[error("{node} is not running")]
    UnknownNode {
        /// The node in the address.
        node: NodeId,
    },
    /// The only route to the agent is the inbound route of the message.
    #[error("the only route to '{to}' is the one that the message came by")]
    NoRoute {
        /// The address.
        to: Address,
    },
    /// The group has no members except the sender.
    #[error("the group '{group}' has no recipient except the sender")]
    EmptyGroup {
        /// The group.
        group: GroupId,
    },
}

/// Recipient of a message: an agent that an address resolves to, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The agent.
    pub agent: AgentId,
    /// Reason why the address resolves to this agent, or to `forwarded_from` if that is set.
    pub resolved_via: ResolvedVia,
    /// The agent whose mail is forwarded to `agent`, if any.
    pub forwarded_from: Option<AgentId>,
}

/// Reason why an address resolves to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedVia {
    /// The agent has this name.
    Name,
    /// The agent has this alias.
    Alias(Name),
    /// An agent of another hub has this name, and no local agent does.
    OtherHub,
    /// The agent runs as this node.
    Node,
    /// The agent is a member of the group.
    Member,
    /// A routing rule adds the agent to the team.
    AddedMember,
    /// A routing rule subscribes the agent's realm to the channel.
    Subscribed,
    /// The name is unknown; it may belong to a local program that only reads its mailbox.
    Unregistered,
}

/// Resolves an address to agents in name order, without the sender of a group message.
///
/// The person is always known and is a member of `all`; the people of other hubs are addressed by name. If no local
/// agent has a name, it resolves to the agent of another hub that has it.
pub fn resolve(
    address: &Address,
    from: &AgentId,
    directory: &Directory,
) -> Result<Vec<AgentId>, ResolveError> {
    Ok(resolve_recipients(address, from, directory)?.into_iter().map(|recipient| recipient.agent).collect())
}

/// Resolves an address to recipients, each with the reason.
///
/// A routing rule that names an unknown swarm or hub is an error if the sender is on this hub. Messages of other hubs
/// and owners are still delivered to the other readers.
pub fn resolve_recipients(
    address: &Address,
    from: &AgentId,
    directory: &Directory,
) -> Result<Vec<Recipient>, ResolveError> {
    if let Address::Group(GroupId::Channel(channel)) = address
        && from.realm.is_none()
    {
        check_channel_link(channel, directory)?;
    }
    resolve_readers(address, from, directory)
}

/// Resolves the readers of a message that is already in its channel. Rules that name unknown swarms or hubs are
/// skipped.
pub(crate) fn resolve_readers(
    address: &Address,
    from: &AgentId,
    directory: &Directory,
) -> Result<Vec<Recipient>, ResolveError> {
    let from = &directory.canonical(from);
    let links = directory.routing_rules();
    let group = |group: &GroupId, members: &mut dyn Iterator<Item = (&AgentId, ResolvedVia)>| {
        let mut found = BTreeMap::new();
        for (agent, resolved_via) in members {
            let recipient = apply_forward(agent, resolved_via, directory)?;
            if recipient.agent != *from && agent != from {
                found.entry(recipient.agent.clone()).or_insert(recipient);
            }
        }
        if found.is_empty() {
            Err(ResolveError::EmptyGroup { group: group.clone() })
        } else {
            Ok(found.into_values().collect())
        }
    };
    match address {
        Address::Agent(agent) if agent.is_human() => Ok(vec![Recipient {
            agent: AgentId::human(),
            resolved_via: ResolvedVia::Name,
            forwarded_from: None,
        }]),
        Address::Agent(agent) => {
            let (known, resolved_via) = match (directory.addressee(agent), links.forward_target(agent)) {
                (Some(record), _) => (record.id.clone(), resolved_via_for(agent, record)),
                // The mail of a removed agent may still be forwarded.
                (None, Some(_)) => (agent.clone(), ResolvedVia::Name),
                (None, None) => return Err(unknown_agent(agent, directory)),
            };
            Ok(vec![apply_forward(&known, resolved_via, directory)?])
        }
        Address::Node(node) => match directory.node(node) {
            // A node is a single process, so its messages are not forwarded.
            Some(record) => Ok(vec![Recipient {
                agent: record.id.clone(),
                resolved_via: ResolvedVia::Node,
                forwarded_from: None,
            }]),
            None => Err(ResolveError::UnknownNode { node: node.clone() }),
        },
        Address::Group(id @ GroupId::Team(team)) => {
            if directory.team(team).is_none() && !links.has_team(team) {
                let near = suggest_similar(team.as_str(), directory.teams().map(|t| t.id.as_str()));
                return Err(ResolveError::UnknownTeam { team: team.clone(), near });
            }
            for agent in links.members(team) {
                check_link(format!("links.teams.{team}"), RuleTarget::Agent(agent), directory)?;
            }
            let included = links.members(team).map(|agent| (agent, ResolvedVia::AddedMember));
            group(id, &mut members(directory.members(team)).chain(included))
        }
        Address::Group(id @ GroupId::Channel(channel)) => {
            let joined = links.subscribers(channel).flat_map(|realm| directory.agents_of_realm(realm));
            // The sender's realm already has the message, and linked hubs relay their channels to each other anyway.
            let joined = joined.filter(|agent| agent.id.realm != from.realm && agent.hub().is_none());
            let joined = joined.map(|agent| (&agent.id, ResolvedVia::Subscribed));
            group(id, &mut members(directory.channel(channel)).chain(joined))
        }
        Address::Group(id @ GroupId::Job(job)) => group(id, &mut members(directory.job(job))),
        Address::Group(id @ GroupId::Swarm(swarm)) => group(id, &mut members(directory.peers(swarm))),
        Address::Group(id @ GroupId::Everyone) => {
            let human = AgentId::human();
            // `all` means every agent with the same owner: agents of this hub and of linked hubs, but not agents of a
            // swarm.
            let ours = directory.agents().filter(|agent| agent.id.realm.is_none() || agent.hub().is_some());
            let ours = members(ours).filter(|(id, _)| !id.name.is_human());
            group(id, &mut ours.chain([(&human, ResolvedVia::Member)]))
        }
    }
}

fn members<'d>(
    agents: impl Iterator<Item = &'d AgentRecord>,
) -> impl Iterator<Item = (&'d AgentId, ResolvedVia)> {
    agents.map(|agent| (&agent.id, ResolvedVia::Member))
}

/// Returns the reason why a name resolves to an agent.
fn resolved_via_for(name: &AgentId, record: &AgentRecord) -> ResolvedVia {
    match (&name.realm, &record.id.realm) {
        (None, Some(_)) => ResolvedVia::OtherHub,
        _ if *name == record.id => ResolvedVia::Name,
        _ => ResolvedVia::Alias(name.name.clone()),
    }
}

/// Applies the forwarding rule of an agent, if there is one.
fn apply_forward(
    agent: &AgentId,
    resolved_via: ResolvedVia,
    directory: &Directory,
) -> Result<Recipient, ResolveError> {
    match directory.routing_rules().forward_target(agent) {
        Some(end) => {
            check_link(format!("links.forwards.{agent}"), RuleTarget::Agent(end), directory)?;
            let end = directory.addressee(end).map_or_else(|| end.clone(), |record| record.id.clone());
            Ok(Recipient { agent: end, resolved_via, forwarded_from: Some(agent.clone()) })
        }
        None => Ok(Recipient { agent: agent.clone(), resolved_via, forwarded_from: None }),
    }
}

/// Returns an error for each routing rule that names an unknown agent, swarm or hub.
pub fn find_broken_rules(directory: &Directory) -> Vec<ResolveError> {
    let targets = directory.routing_rules().targets();
    targets.filter_map(|(link, target)| check_link(link, target, directory).err()).collect()
}

fn check_channel_link(channel: &Name, directory: &Directory) -> Result<(), ResolveError> {
    directory.routing_rules().subscribers(channel).try_for_each(|realm| {
        check_link(format!("links.channels.{channel}"), RuleTarget::Realm(realm), directory)
    })
}

/// Checks that the target of a routing rule is known.
///
/// The hub knows the complete roster of a swarm and all agents of a linked hub. A removed agent is a valid target while
/// its mail is forwarded.
fn check_link(link: String, target: RuleTarget<'_>, directory: &Directory) -> Result<(), ResolveError> {
    let unknown_realm =
        |realm: &Name| ResolveError::UnknownRealm { realm: realm.clone(), link: link.clone() };
    let agent = match target {
        RuleTarget::Realm(realm) if directory.has_realm(realm) => return Ok(()),
        RuleTarget::Realm(realm) => return Err(unknown_realm(realm)),
        RuleTarget::Agent(agent) => agent,
    };
    let is_known = agent.is_human()
        || directory.addressee(agent).is_some()
        || directory.routing_rules().forward_target(agent).is_some();
    if is_known {
        return Ok(());
    }
    if let Some(realm) = agent.realm.as_ref().filter(|realm| !directory.has_realm(realm)) {
        return Err(unknown_realm(realm));
    }
    let names: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
    let near = suggest_similar(&agent.to_string(), names.iter().map(String::as_str).chain([HUMAN]));
    Err(ResolveError::UnknownRuleTarget { agent: agent.clone(), link, near })
}

fn unknown_agent(agent: &AgentId, directory: &Directory) -> ResolveError {
    let known: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
    let aliases = directory.aliases().map(|(alias, _)| alias.as_str());
    let near =
        suggest_similar(&agent.to_string(), known.iter().map(String::as_str).chain(aliases).chain([HUMAN]));
    ResolveError::UnknownAgent { agent: agent.clone(), near, known }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
