//! From an address to agents.

use std::collections::BTreeSet;

use crate::{Address, AgentId, Directory, GroupId, HUMAN, Name, NodeId, nearest};

/// Why an address leads to nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No agent of that name.
    #[error("no agent is named '{agent}'")]
    UnknownAgent {
        /// The name as given.
        agent: AgentId,
        /// Known names that look like it, best first.
        near: Vec<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// No team of that name.
    #[error("no team is named '{team}'")]
    UnknownTeam {
        /// The name as given.
        team: Name,
        /// Known names that look like it, best first.
        near: Vec<String>,
    },
    /// No running node of that number.
    #[error("{node} is not running")]
    UnknownNode {
        /// The node as given.
        node: NodeId,
    },
    /// The only way to the agent is the one the message came in by.
    #[error("the only way to '{to}' is the one the message came by")]
    NoRoute {
        /// The address as given.
        to: Address,
    },
    /// A group nobody belongs to, apart from the sender.
    #[error("nobody but the sender would get a message to '{group}'")]
    EmptyGroup {
        /// The group.
        group: GroupId,
    },
}

/// The agents an address stands for, in name order, the sender of a group message left out.
///
/// The person is always known and belongs to `all`; the people of other hubs are written to by name. A name that
/// nobody here has leads to the agent of another hub that has it.
pub fn resolve(
    address: &Address,
    from: &AgentId,
    directory: &Directory,
) -> Result<Vec<AgentId>, ResolveError> {
    let from = &directory.canonical(from);
    let group = |group: &GroupId, members: &mut dyn Iterator<Item = &AgentId>| {
        let members: BTreeSet<_> = members.filter(|id| *id != from).cloned().collect();
        if members.is_empty() {
            Err(ResolveError::EmptyGroup { group: group.clone() })
        } else {
            Ok(members.into_iter().collect())
        }
    };
    match address {
        Address::Agent(agent) if agent.is_human() => Ok(vec![AgentId::human()]),
        Address::Agent(agent) => match directory.addressee(agent) {
            Some(record) => Ok(vec![record.id.clone()]),
            None => Err(unknown_agent(agent, directory)),
        },
        Address::Node(node) => match directory.node(node) {
            Some(record) => Ok(vec![record.id.clone()]),
            None => Err(ResolveError::UnknownNode { node: node.clone() }),
        },
        Address::Group(id @ GroupId::Team(team)) => {
            if directory.team(team).is_none() {
                let near = nearest(team.as_str(), directory.teams().map(|t| t.id.as_str()));
                return Err(ResolveError::UnknownTeam { team: team.clone(), near });
            }
            group(id, &mut directory.members(team).map(|agent| &agent.id))
        }
        Address::Group(id @ GroupId::Channel(channel)) => {
            group(id, &mut directory.channel(channel).map(|agent| &agent.id))
        }
        Address::Group(id @ GroupId::Job(job)) => group(id, &mut directory.job(job).map(|agent| &agent.id)),
        Address::Group(id @ GroupId::Swarm(swarm)) => {
            group(id, &mut directory.peers(swarm).map(|agent| &agent.id))
        }
        Address::Group(id @ GroupId::Everyone) => {
            let human = AgentId::human();
            // Those behind a swarm are of other owners; those of other hubs are of ours.
            let ours = directory.agents().filter(|agent| agent.id.realm.is_none() || agent.hub().is_some());
            group(id, &mut ours.map(|agent| &agent.id).filter(|id| !id.name.is_human()).chain([&human]))
        }
    }
}

fn unknown_agent(agent: &AgentId, directory: &Directory) -> ResolveError {
    let known: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
    let aliases = directory.aliases().map(|(alias, _)| alias.as_str());
    let near = nearest(&agent.to_string(), known.iter().map(String::as_str).chain(aliases).chain([HUMAN]));
    ResolveError::UnknownAgent { agent: agent.clone(), near, known }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
