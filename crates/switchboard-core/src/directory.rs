//! Who is known, and how each can be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::{AgentId, JobId, Links, Name, NodeId, Route};

/// The agents, aliases and teams a hub knows, as a plain value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    agents: BTreeMap<AgentId, AgentRecord>,
    aliases: BTreeMap<Name, Name>,
    teams: BTreeMap<Name, TeamRecord>,
    swarms: BTreeSet<Name>,
    links: Arc<Links>,
}

/// What is known of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    /// Who; the spelling here is the canonical one, used for every path.
    pub id: AgentId,
    /// What it is there for, if said: `lead`, `reviewer` …
    pub role: Option<String>,
    /// The team it belongs to.
    pub team: Option<Name>,
    /// The ways to reach it, in no order.
    pub routes: Vec<Route>,
    /// When it was registered.
    pub registered_at: Timestamp,
}

/// What is known of one team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamRecord {
    /// The team's id.
    pub id: Name,
    /// What people call it.
    pub title: String,
    /// Whether one agent plays the whole team.
    pub composite: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

impl AgentRecord {
    /// The hub that it lives on, where that is another one: its realm. Its further routes are how it is reached
    /// there.
    pub fn hub(&self) -> Option<&Name> {
        let leads_to =
            |realm: &Name| self.routes.iter().any(|r| matches!(r, Route::Hub { hub } if hub == realm));
        self.id.realm.as_ref().filter(|realm| leads_to(realm))
    }
}

impl Directory {
    /// Adds or replaces an agent.
    pub fn put_agent(&mut self, record: AgentRecord) {
        self.agents.remove(&record.id);
        self.agents.insert(record.id.clone(), record);
    }

    /// Adds a former or other name of an agent of this hub.
    pub fn put_alias(&mut self, alias: Name, agent: Name) {
        self.aliases.insert(alias, agent);
    }

    /// Adds or replaces a team.
    pub fn put_team(&mut self, record: TeamRecord) {
        self.teams.remove(&record.id);
        self.teams.insert(record.id.clone(), record);
    }

    /// Adds a swarm that this hub is in, which may have no other members.
    pub fn put_swarm(&mut self, swarm: Name) {
        self.swarms.insert(swarm);
    }

    /// Sets what a person has joined.
    pub fn set_links(&mut self, links: Arc<Links>) {
        self.links = links;
    }

    /// What a person has joined.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// True if this hub is in a swarm of this name, or knows an agent of a hub of this name.
    pub fn has_realm(&self, realm: &Name) -> bool {
        self.swarms.contains(realm) || self.of_realm(realm).next().is_some()
    }

    /// The agent of this id or alias, ignoring case.
    pub fn agent(&self, id: &AgentId) -> Option<&AgentRecord> {
        self.agents.get(id).or_else(|| {
            let canonical = id.realm.is_none().then(|| self.aliases.get(&id.name)).flatten()?;
            self.agents.get(&AgentId::local(canonical.clone()))
        })
    }

    /// The one agent of another hub that goes by this name; none where several hubs have one, because nobody
    /// could say which of them is meant.
    pub fn elsewhere(&self, name: &Name) -> Option<&AgentRecord> {
        let first = AgentId::local(name.clone());
        let namesakes = self.agents.range(first..).take_while(|(id, _)| &id.name == name);
        let mut remote = namesakes.map(|(_, record)| record).filter(|record| record.hub().is_some());
        remote.next().filter(|_| remote.next().is_none())
    }

    /// The agents of one other hub.
    pub fn residents<'a>(&'a self, hub: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents.values().filter(move |agent| agent.hub() == Some(hub))
    }

    /// The agents of one realm, be it a swarm or another hub.
    pub fn of_realm<'a>(&'a self, realm: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents.values().filter(move |agent| agent.id.realm.as_ref() == Some(realm))
    }

    /// The members of a swarm, without those of this hub.
    pub fn peers<'a>(&'a self, swarm: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        let is_peer = |agent: &&AgentRecord| agent.routes.iter().any(|r| matches!(r, Route::Peer { .. }));
        self.agents.values().filter(move |agent| agent.id.realm.as_ref() == Some(swarm)).filter(is_peer)
    }

    /// The agent that an address names: of this hub, or else of another one.
    pub fn addressee(&self, id: &AgentId) -> Option<&AgentRecord> {
        let elsewhere = || id.realm.is_none().then(|| self.elsewhere(&id.name)).flatten();
        self.agent(id).or_else(elsewhere)
    }

    /// The canonical spelling of an agent's name, or the name as given where it is unknown.
    pub fn canonical(&self, id: &AgentId) -> AgentId {
        self.agent(id).map_or_else(|| id.clone(), |record| record.id.clone())
    }

    /// The agent that runs as this node.
    pub fn node(&self, node: &NodeId) -> Option<&AgentRecord> {
        self.agents.values().find(|a| a.routes.iter().any(|r| matches!(r, Route::Worker(n) if n == node)))
    }

    /// The agents that run as nodes of this job.
    pub fn job<'a>(&'a self, job: &'a JobId) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents
            .values()
            .filter(move |a| a.routes.iter().any(|r| matches!(r, Route::Worker(n) if &n.job == job)))
    }

    /// The agents that read this channel. The channel `team-NAME` is that of the team NAME, so its members
    /// belong to it wherever they read their mail.
    pub fn channel<'a>(&'a self, channel: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        let team = team_of_channel(channel);
        self.agents.values().filter(move |a| {
            a.routes.iter().any(|r| matches!(r, Route::Channel { channel: c } if c == channel))
                || (team.is_some() && a.team == team)
        })
    }

    /// All agents, ordered by name.
    pub fn agents(&self) -> impl Iterator<Item = &AgentRecord> {
        self.agents.values()
    }

    /// All other names, with the agent each stands for.
    pub fn aliases(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.aliases.iter()
    }

    /// The team of this id, ignoring case.
    pub fn team(&self, id: &Name) -> Option<&TeamRecord> {
        self.teams.get(id)
    }

    /// All teams, ordered by id.
    pub fn teams(&self) -> impl Iterator<Item = &TeamRecord> {
        self.teams.values()
    }

    /// The members of a team, ordered by name.
    pub fn members<'a>(&'a self, team: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents.values().filter(move |agent| agent.team.as_ref() == Some(team))
    }
}

/// The team whose channel this is, going by its name.
fn team_of_channel(channel: &Name) -> Option<Name> {
    let (prefix, team) = channel.as_str().split_at_checked("team-".len())?;
    prefix.eq_ignore_ascii_case("team-").then(|| Name::parse(team).ok()).flatten()
}
