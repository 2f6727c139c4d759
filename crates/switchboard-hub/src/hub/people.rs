//! Who is known, and who is awake.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use switchboard_core::{AgentId, AgentRecord, Directory, Heartbeat, Name, Presence, Route, TeamRecord};
use tokio::sync::watch;

use super::Hub;
use crate::directory::{self, Registration};
use crate::error::HubError;
use crate::events::HubEvent;
use crate::store::writer::CachedDirectory;

/// The directory as a connection sees it. The lock is never held while the database is read, so that no thread waits for it.
pub(super) fn read_directory(
    cached: &Mutex<CachedDirectory>,
    db: &Connection,
) -> Result<Arc<Directory>, HubError> {
    let mut known = cached.lock().clone();
    if known.refresh(db)? {
        *cached.lock() = known.clone();
    }
    Ok(known.value)
}

impl Hub {
    /// Registers an agent, or adds to what is known of it.
    pub async fn register(&self, new: Registration) -> Result<AgentRecord, HubError> {
        self.write(move |tx| directory::register(tx, new)).await
    }

    /// Removes an agent; its mail stays. False where it was not known.
    pub async fn deregister(&self, name: Name) -> Result<bool, HubError> {
        self.inner.presence.forget(&AgentId::local(name.clone()));
        self.write(move |tx| directory::deregister(tx, &name)).await
    }

    /// Takes away one way to reach an agent.
    pub async fn remove_route(&self, name: Name, route: Route) -> Result<(), HubError> {
        self.write(move |tx| directory::remove_route(tx, &name, &route)).await
    }

    /// Gives an agent another name; the old one goes on leading to it.
    pub async fn rename(&self, from: Name, to: Name) -> Result<AgentRecord, HubError> {
        self.write(move |tx| directory::rename(tx, &from, &to)).await
    }

    /// Makes a team, or changes its title.
    pub async fn create_team(
        &self,
        id: Name,
        title: Option<String>,
        composite: bool,
    ) -> Result<TeamRecord, HubError> {
        self.write(move |tx| directory::create_team(tx, id, title, composite)).await
    }

    /// Puts an agent into a team, or out of any.
    pub async fn assign(&self, agent: Name, team: Option<Name>) -> Result<AgentRecord, HubError> {
        self.write(move |tx| directory::assign(tx, &agent, team.as_ref())).await
    }

    /// Says what an agent is there for, or that it has no role.
    pub async fn set_role(&self, agent: Name, role: Option<String>) -> Result<AgentRecord, HubError> {
        self.write(move |tx| directory::set_role(tx, &agent, role)).await
    }

    /// Makes these the other members of a swarm; `None` where this hub is no longer in it. Says whether that changed
    /// anything.
    pub async fn put_peers(
        &self,
        swarm: Name,
        peers: Option<Vec<directory::Peer>>,
    ) -> Result<bool, HubError> {
        self.write(move |tx| directory::put_peers(tx, &swarm, peers.as_deref())).await
    }

    /// Everyone who is known, as of now.
    pub async fn directory(&self) -> Result<Arc<Directory>, HubError> {
        if let Some(directory) = self.glance(|db| read_directory(&self.inner.directory, db)) {
            return Ok(directory);
        }
        let hub = self.clone();
        self.read(move |db| read_directory(&hub.inner.directory, db)).await
    }

    /// The same on a thread that may wait.
    pub fn directory_blocking(&self) -> Result<Arc<Directory>, HubError> {
        self.read_blocking(|db| read_directory(&self.inner.directory, db))
    }

    /// When an agent that is not known any more was removed, as far as that is remembered.
    pub async fn retired_at(&self, agent: AgentId) -> Result<Option<Timestamp>, HubError> {
        self.read(move |db| directory::retired_at(db, &agent)).await
    }

    /// Notes a sign of life of an agent.
    pub fn announce(&self, agent: AgentId, status: &str, message: Option<&str>) {
        let beat = Heartbeat {
            agent: agent.clone(),
            at: self.now(),
            status: status.to_owned(),
            message: message.map(str::to_owned),
        };
        self.record_heartbeat(beat);
    }

    /// Takes over a sign of life that was given elsewhere, at the time it was given.
    pub fn record_heartbeat(&self, beat: Heartbeat) {
        let agent = beat.agent.clone();
        self.inner.presence.record(beat);
        self.inner.events.send(HubEvent::Presence(Box::new(self.presence(&agent))));
    }

    /// Changes whenever this process hears that an agent of this hub does something else than before.
    pub fn presence_changes(&self) -> watch::Receiver<u64> {
        self.inner.presence.changes()
    }

    /// Says whether this process can read the signs of life of watchers. Where it cannot, agents that are reached by channels
    /// alone are not offline but unknown.
    pub async fn observe_watchers(&self, is_readable: bool) -> Result<(), HubError> {
        let mut unobserved = HashSet::new();
        if !is_readable {
            let directory = self.directory().await?;
            let is_watcher = |record: &&AgentRecord| {
                let mut routes = record.routes.iter();
                !record.routes.is_empty() && routes.all(|route| matches!(route, Route::Channel { .. }))
            };
            unobserved.extend(directory.agents().filter(is_watcher).map(|record| record.id.clone()));
        }
        self.inner.presence.set_unobserved(unobserved);
        Ok(())
    }

    /// Whether an agent is awake, as far as this process has heard.
    pub fn presence(&self, agent: &AgentId) -> Presence {
        self.inner.presence.of(agent, self.now(), self.inner.config.presence)
    }
}
