//! Access to agents, teams and peers: registration, presence and the activity log.

use std::collections::HashSet;

use jiff::Timestamp;
use switchboard_core::{AgentId, AgentRecord, Heartbeat, Name, Presence, Route, TeamRecord};
use tokio::sync::watch;

use super::Hub;
use crate::activity::{self, Activity};
use crate::directory::{self, Registration};
use crate::error::HubError;
use crate::events::HubEvent;

/// Access to agents, teams and peers, and to their presence and activity.
#[derive(Clone, Copy)]
pub struct Agents<'h> {
    pub(super) hub: &'h Hub,
}

impl Agents<'_> {
    /// Registers an agent, or updates its registration.
    pub async fn register(self, new: Registration) -> Result<AgentRecord, HubError> {
        self.hub.write(move |tx| directory::register(tx, new)).await
    }

    /// Removes an agent; its messages stay. Returns false if the agent was unknown.
    pub async fn deregister(self, name: Name) -> Result<bool, HubError> {
        self.hub.inner.presence.forget(&AgentId::local(name.clone()));
        self.hub.write(move |tx| directory::deregister(tx, &name)).await
    }

    /// Removes a route to an agent.
    pub async fn remove_route(self, name: Name, route: Route) -> Result<(), HubError> {
        self.hub.write(move |tx| directory::remove_route(tx, &name, &route)).await
    }

    /// Renames an agent; the old name becomes an alias.
    pub async fn rename(self, from: Name, to: Name) -> Result<AgentRecord, HubError> {
        self.hub.write(move |tx| directory::rename(tx, &from, &to)).await
    }

    /// Creates a team, or changes its title.
    pub async fn create_team(
        self,
        id: Name,
        title: Option<String>,
        composite: bool,
    ) -> Result<TeamRecord, HubError> {
        self.hub.write(move |tx| directory::create_team(tx, id, title, composite)).await
    }

    /// Assigns an agent to a team, or removes it from its team.
    pub async fn assign(self, agent: Name, team: Option<Name>) -> Result<AgentRecord, HubError> {
        self.hub.write(move |tx| directory::assign(tx, &agent, team.as_ref())).await
    }

    /// Sets or clears the role of an agent.
    pub async fn set_role(self, agent: Name, role: Option<String>) -> Result<AgentRecord, HubError> {
        self.hub.write(move |tx| directory::set_role(tx, &agent, role)).await
    }

    /// Replaces the other members of a swarm.
    ///
    /// With `None`, removes them, because this hub has left the swarm. Returns true if anything changed.
    pub async fn put_peers(self, swarm: Name, peers: Option<Vec<directory::Peer>>) -> Result<bool, HubError> {
        self.hub.write(move |tx| directory::put_peers(tx, &swarm, peers.as_deref())).await
    }

    /// Returns when an agent was removed (its tombstone), as far back as the activity log goes.
    pub async fn retired_at(self, agent: AgentId) -> Result<Option<Timestamp>, HubError> {
        self.hub.read(move |db| directory::retired_at(db, &agent)).await
    }

    /// Records a heartbeat of an agent at the current time.
    pub fn announce(self, agent: AgentId, status: &str, message: Option<&str>) {
        let beat = Heartbeat {
            agent: agent.clone(),
            at: self.hub.now(),
            status: status.to_owned(),
            message: message.map(str::to_owned),
        };
        self.record_heartbeat(beat);
    }

    /// Records a heartbeat that was observed elsewhere, with its original time.
    pub fn record_heartbeat(self, beat: Heartbeat) {
        let agent = beat.agent.clone();
        self.hub.inner.presence.record(beat);
        self.hub.inner.events.send(HubEvent::Presence(Box::new(self.presence(&agent))));
    }

    /// Derives the presence of an agent from the heartbeats that this process knows.
    pub fn presence(self, agent: &AgentId) -> Presence {
        self.hub.inner.presence.of(agent, self.hub.now(), self.hub.inner.config.presence)
    }

    /// Subscribes to status changes of agents of this hub.
    pub fn presence_changes(self) -> watch::Receiver<u64> {
        self.hub.inner.presence.changes()
    }

    /// Sets whether this process can read the heartbeats of watchers.
    ///
    /// If it cannot, agents that have only channel routes count as unknown instead of offline.
    pub async fn observe_watchers(self, is_readable: bool) -> Result<(), HubError> {
        let mut unobserved = HashSet::new();
        if !is_readable {
            let directory = self.hub.directory().await?;
            let is_watcher = |record: &&AgentRecord| {
                let mut routes = record.routes.iter();
                !record.routes.is_empty() && routes.all(|route| matches!(route, Route::Channel { .. }))
            };
            unobserved.extend(directory.agents().filter(is_watcher).map(|record| record.id.clone()));
        }
        self.hub.inner.presence.set_unobserved(unobserved);
        Ok(())
    }

    /// Lists actions of agents in order.
    ///
    /// The list starts after a cursor of the activity log and from a given journal number on.
    pub async fn activity(self, after: i64, seq: i64, limit: usize) -> Result<Vec<Activity>, HubError> {
        self.hub.read(move |db| activity::list(db, after, seq, limit)).await
    }

    /// Returns the cursor of the latest action.
    pub async fn last_activity(self) -> Result<i64, HubError> {
        self.hub.read(activity::last).await
    }
}
