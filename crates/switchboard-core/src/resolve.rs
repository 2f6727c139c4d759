//! From an address to agents.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{Address, AgentId, AgentRecord, Directory, GroupId, HUMAN, LinkTarget, Name, NodeId, nearest};

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
    /// The agent was removed, and nobody has its name now. Only whoever keeps that in mind can tell it from one that never
    /// was.
    #[error("'{agent}' was removed at {at:.0}, and no agent has that name now")]
    Retired {
        /// The name as given.
        agent: AgentId,
        /// When.
        at: Timestamp,
    },
    /// A link of the settings leads to nobody.
    #[error("no agent is named '{agent}', to whom {link} leads")]
    UnknownByLink {
        /// The name as the link has it.
        agent: AgentId,
        /// The link, as the settings call it.
        link: String,
        /// Known names that look like it, best first.
        near: Vec<String>,
    },
    /// A link of the settings leads to an unknown swarm or hub.
    #[error("{link} leads to '{realm}', and no agent of a swarm or hub of that name is known")]
    UnknownRealm {
        /// The swarm or hub.
        realm: Name,
        /// The link, as the settings call it.
        link: String,
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

/// One agent that an address leads to, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The agent.
    pub agent: AgentId,
    /// Why the address leads to it, or to the one whose mail is forwarded to it.
    pub because: Because,
    /// Whose mail it gets here by a forward.
    pub forwarded_from: Option<AgentId>,
}

/// Why an address leads to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// It has that name.
    Named,
    /// That is another name of it.
    Alias(Name),
    /// Nobody here has that name, and this one of another hub has.
    Elsewhere,
    /// It runs as that node.
    Node,
    /// It belongs to the group.
    Member,
    /// A link makes it a member of the team.
    Included,
    /// A link has everyone of its realm read the channel along.
    Joined,
    /// Nobody is known by that name; a local name may be that of a program which only reads its mailbox.
    Unregistered,
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
    Ok(trace(address, from, directory)?.into_iter().map(|recipient| recipient.agent).collect())
}

/// The same, with the reason for each.
///
/// A link to an unknown swarm or hub is an error for a writer of this hub. Messages of other hubs and owners reach the other
/// readers all the same.
pub fn trace(
    address: &Address,
    from: &AgentId,
    directory: &Directory,
) -> Result<Vec<Recipient>, ResolveError> {
    if let Address::Group(GroupId::Channel(channel)) = address
        && from.realm.is_none()
    {
        check_channel_link(channel, directory)?;
    }
    trace_readers(address, from, directory)
}

/// The same for a message that its readers find where it is: links of its channel to unknown swarms and hubs are left out.
pub(crate) fn trace_readers(
    address: &Address,
    from: &AgentId,
    directory: &Directory,
) -> Result<Vec<Recipient>, ResolveError> {
    let from = &directory.canonical(from);
    let links = directory.links();
    let group = |group: &GroupId, members: &mut dyn Iterator<Item = (&AgentId, Because)>| {
        let mut found = BTreeMap::new();
        for (agent, because) in members {
            let recipient = forwarded(agent, because, directory)?;
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
        Address::Agent(agent) if agent.is_human() => {
            Ok(vec![Recipient { agent: AgentId::human(), because: Because::Named, forwarded_from: None }])
        }
        Address::Agent(agent) => {
            let (known, because) = match (directory.addressee(agent), links.end_of(agent)) {
                (Some(record), _) => (record.id.clone(), why(agent, record)),
                // An agent that has gone for good may still have mail forwarded.
                (None, Some(_)) => (agent.clone(), Because::Named),
                (None, None) => return Err(unknown_agent(agent, directory)),
            };
            Ok(vec![forwarded(&known, because, directory)?])
        }
        Address::Node(node) => match directory.node(node) {
            // A node is a process, and what is for it is for no other.
            Some(record) => {
                Ok(vec![Recipient { agent: record.id.clone(), because: Because::Node, forwarded_from: None }])
            }
            None => Err(ResolveError::UnknownNode { node: node.clone() }),
        },
        Address::Group(id @ GroupId::Team(team)) => {
            if directory.team(team).is_none() && !links.has_team(team) {
                let near = nearest(team.as_str(), directory.teams().map(|t| t.id.as_str()));
                return Err(ResolveError::UnknownTeam { team: team.clone(), near });
            }
            for agent in links.members(team) {
                check_link(format!("links.teams.{team}"), LinkTarget::Agent(agent), directory)?;
            }
            let included = links.members(team).map(|agent| (agent, Because::Included));
            group(id, &mut members(directory.members(team)).chain(included))
        }
        Address::Group(id @ GroupId::Channel(channel)) => {
            let joined = links.realms(channel).flat_map(|realm| directory.of_realm(realm));
            // What came from a realm has been heard there, and hubs bring their channels to each other anyway.
            let joined = joined.filter(|agent| agent.id.realm != from.realm && agent.hub().is_none());
            let joined = joined.map(|agent| (&agent.id, Because::Joined));
            group(id, &mut members(directory.channel(channel)).chain(joined))
        }
        Address::Group(id @ GroupId::Job(job)) => group(id, &mut members(directory.job(job))),
        Address::Group(id @ GroupId::Swarm(swarm)) => group(id, &mut members(directory.peers(swarm))),
        Address::Group(id @ GroupId::Everyone) => {
            let human = AgentId::human();
            // Those behind a swarm are of other owners; those of other hubs are of ours.
            let ours = directory.agents().filter(|agent| agent.id.realm.is_none() || agent.hub().is_some());
            let ours = members(ours).filter(|(id, _)| !id.name.is_human());
            group(id, &mut ours.chain([(&human, Because::Member)]))
        }
    }
}

fn members<'d>(
    agents: impl Iterator<Item = &'d AgentRecord>,
) -> impl Iterator<Item = (&'d AgentId, Because)> {
    agents.map(|agent| (&agent.id, Because::Member))
}

/// Why a name leads to an agent.
fn why(name: &AgentId, record: &AgentRecord) -> Because {
    match (&name.realm, &record.id.realm) {
        (None, Some(_)) => Because::Elsewhere,
        _ if *name == record.id => Because::Named,
        _ => Because::Alias(name.name.clone()),
    }
}

/// The one who gets what is for an agent.
fn forwarded(agent: &AgentId, because: Because, directory: &Directory) -> Result<Recipient, ResolveError> {
    match directory.links().end_of(agent) {
        Some(end) => {
            check_link(format!("links.forwards.{agent}"), LinkTarget::Agent(end), directory)?;
            let end = directory.addressee(end).map_or_else(|| end.clone(), |record| record.id.clone());
            Ok(Recipient { agent: end, because, forwarded_from: Some(agent.clone()) })
        }
        None => Ok(Recipient { agent: agent.clone(), because, forwarded_from: None }),
    }
}

/// Problems with the links of the settings: one for each link that leads to an unknown agent, swarm or hub.
pub fn broken_links(directory: &Directory) -> Vec<ResolveError> {
    let targets = directory.links().targets();
    targets.filter_map(|(link, target)| check_link(link, target, directory).err()).collect()
}

fn check_channel_link(channel: &Name, directory: &Directory) -> Result<(), ResolveError> {
    directory.links().realms(channel).try_for_each(|realm| {
        check_link(format!("links.channels.{channel}"), LinkTarget::Realm(realm), directory)
    })
}

/// Refuses a link to an unknown agent, swarm or hub. The roster of a swarm is known as a whole, and so are the agents of a
/// linked hub. The mail of an agent that was removed may still be forwarded.
fn check_link(link: String, target: LinkTarget<'_>, directory: &Directory) -> Result<(), ResolveError> {
    let unknown_realm =
        |realm: &Name| ResolveError::UnknownRealm { realm: realm.clone(), link: link.clone() };
    let agent = match target {
        LinkTarget::Realm(realm) if directory.has_realm(realm) => return Ok(()),
        LinkTarget::Realm(realm) => return Err(unknown_realm(realm)),
        LinkTarget::Agent(agent) => agent,
    };
    let is_known =
        agent.is_human() || directory.addressee(agent).is_some() || directory.links().end_of(agent).is_some();
    if is_known {
        return Ok(());
    }
    if let Some(realm) = agent.realm.as_ref().filter(|realm| !directory.has_realm(realm)) {
        return Err(unknown_realm(realm));
    }
    let names: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
    let near = nearest(&agent.to_string(), names.iter().map(String::as_str).chain([HUMAN]));
    Err(ResolveError::UnknownByLink { agent: agent.clone(), link, near })
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
