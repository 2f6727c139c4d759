//! Directory of the known agents, teams and swarms, and the routes to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::{AgentId, JobId, Name, NodeId, Route, RoutingRules};

/// Directory of the agents, aliases, teams and swarms that a hub knows, as a plain value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    agents: BTreeMap<AgentId, AgentRecord>,
    aliases: BTreeMap<Name, Name>,
    teams: BTreeMap<Name, TeamRecord>,
    swarms: BTreeSet<Name>,
    links: Arc<RoutingRules>,
}

/// Directory entry of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    /// Id of the agent in its canonical spelling, which every file path uses.
    pub id: AgentId,
    /// Role of the agent, if it declared one: `lead`, `reviewer` …
    pub role: Option<String>,
    /// Team of the agent.
    pub team: Option<Name>,
    /// Routes to the agent, in no particular order.
    pub routes: Vec<Route>,
    /// When the agent was registered.
    pub registered_at: Timestamp,
}

/// Directory entry of one team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamRecord {
    /// The team's id.
    pub id: Name,
    /// Display name of the team.
    pub title: String,
    /// True if a single agent acts as the whole team.
    pub composite: bool,
    /// When the team was created.
    pub created_at: Timestamp,
}

impl AgentRecord {
    /// Returns the linked hub that the agent belongs to, if any.
    ///
    /// The agent's realm names that hub. All further routes of the record are routes of that hub.
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

    /// Adds an alias of an agent of this hub, such as a former name.
    pub fn put_alias(&mut self, alias: Name, agent: Name) {
        self.aliases.insert(alias, agent);
    }

    /// Adds or replaces a team.
    pub fn put_team(&mut self, record: TeamRecord) {
        self.teams.remove(&record.id);
        self.teams.insert(record.id.clone(), record);
    }

    /// Adds a swarm that this hub has joined. The swarm may have no other members.
    pub fn put_swarm(&mut self, swarm: Name) {
        self.swarms.insert(swarm);
    }

    /// Sets the routing rules of the user's settings.
    pub fn set_routing_rules(&mut self, links: Arc<RoutingRules>) {
        self.links = links;
    }

    /// Returns the routing rules of the user's settings.
    pub fn routing_rules(&self) -> &RoutingRules {
        &self.links
    }

    /// Returns true if a swarm or hub of this name is known.
    ///
    /// This hub has joined the swarm, or knows an agent of the hub.
    pub fn has_realm(&self, realm: &Name) -> bool {
        self.swarms.contains(realm) || self.agents_of_realm(realm).next().is_some()
    }

    /// Finds an agent by id or alias, ignoring case.
    pub fn agent(&self, id: &AgentId) -> Option<&AgentRecord> {
        self.agents.get(id).or_else(|| {
            let canonical = id.realm.is_none().then(|| self.aliases.get(&id.name)).flatten()?;
            self.agents.get(&AgentId::local(canonical.clone()))
        })
    }

    /// Finds the agent with this name on another hub.
    ///
    /// Returns `None` if agents of several hubs have the name, because it is then ambiguous.
    pub fn find_remote(&self, name: &Name) -> Option<&AgentRecord> {
        let first = AgentId::local(name.clone());
        let namesakes = self.agents.range(first..).take_while(|(id, _)| &id.name == name);
        let mut remote = namesakes.map(|(_, record)| record).filter(|record| record.hub().is_some());
        remote.next().filter(|_| remote.next().is_none())
    }

    /// Returns the agents of another hub.
    pub fn agents_of_hub<'a>(&'a self, hub: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents.values().filter(move |agent| agent.hub() == Some(hub))
    }

    /// Returns the agents of a realm: a swarm or another hub.
    pub fn agents_of_realm<'a>(&'a self, realm: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents.values().filter(move |agent| agent.id.realm.as_ref() == Some(realm))
    }

    /// Returns the members of a swarm, except those of this hub.
    pub fn peers<'a>(&'a self, swarm: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        let is_peer = |agent: &&AgentRecord| agent.routes.iter().any(|r| matches!(r, Route::Peer { .. }));
        self.agents.values().filter(move |agent| agent.id.realm.as_ref() == Some(swarm)).filter(is_peer)
    }

    /// Finds the agent that an address names: on this hub first, otherwise on another one.
    pub fn addressee(&self, id: &AgentId) -> Option<&AgentRecord> {
        let elsewhere = || id.realm.is_none().then(|| self.find_remote(&id.name)).flatten();
        self.agent(id).or_else(elsewhere)
    }

    /// Returns the canonical spelling of an agent's id, or the given id if the agent is unknown.
    pub fn canonical(&self, id: &AgentId) -> AgentId {
        self.agent(id).map_or_else(|| id.clone(), |record| record.id.clone())
    }

    /// Finds the agent that runs as this node.
    pub fn node(&self, node: &NodeId) -> Option<&AgentRecord> {
        self.agents.values().find(|a| a.routes.iter().any(|r| matches!(r, Route::Worker(n) if n == node)))
    }

    /// Returns the agents that run as nodes of this job.
    pub fn job<'a>(&'a self, job: &'a JobId) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents
            .values()
            .filter(move |a| a.routes.iter().any(|r| matches!(r, Route::Worker(n) if &n.job == job)))
    }

    /// Returns the readers of a channel.
    ///
    /// The channel `team-NAME` belongs to the team NAME, so all members of the team are readers, whatever their routes.
    pub fn channel<'a>(&'a self, channel: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        let team = team_of_channel(channel);
        self.agents.values().filter(move |a| {
            a.routes.iter().any(|r| matches!(r, Route::Channel { channel: c } if c == channel))
                || (team.is_some() && a.team == team)
        })
    }

    /// Returns all agents, ordered by name.
    pub fn agents(&self) -> impl Iterator<Item = &AgentRecord> {
        self.agents.values()
    }

    /// Returns all aliases, each with the name of its agent.
    pub fn aliases(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.aliases.iter()
    }

    /// Finds a team by id, ignoring case.
    pub fn team(&self, id: &Name) -> Option<&TeamRecord> {
        self.teams.get(id)
    }

    /// Returns all teams, ordered by id.
    pub fn teams(&self) -> impl Iterator<Item = &TeamRecord> {
        self.teams.values()
    }

    /// Returns the members of a team, ordered by name.
    pub fn members<'a>(&'a self, team: &'a Name) -> impl Iterator<Item = &'a AgentRecord> {
        self.agents.values().filter(move |agent| agent.team.as_ref() == Some(team))
    }
}

/// Returns the team to which a channel belongs by its name `team-NAME`.
fn team_of_channel(channel: &Name) -> Option<Name> {
    let (prefix, team) = channel.as_str().split_at_checked("team-".len())?;
    prefix.eq_ignore_ascii_case("team-").then(|| Name::parse(team).ok()).flatten()
}
