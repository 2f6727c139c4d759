//! Session owners: the registry of sessions that act for agents.
//!
//! A session that registers an agent's name must be the only session for this agent. Otherwise, any session could read
//! another agent's messages by using its name. The owner of several clients may configure them for the same agent;
//! while one of these clients is connected, no session can register the name. Ownership is backed by a lease on an
//! operating system lock, so it also excludes other processes and ends with the process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use switchboard_core::AgentId;
use switchboard_hub::{Hub, HubError};
use switchboard_sys::service_lease::{LeaseKey, ServiceLease};

/// Idle timeout after which a session may be replaced.
///
/// It applies if the transport does not report the end of sessions: a killed client of streamable HTTP sends nothing.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// The owners of agents among the sessions of this process. Clones share the registry.
#[derive(Clone)]
pub(super) struct SessionOwners {
    hub: Hub,
    held: Arc<Mutex<HashMap<String, Ownership>>>,
    sessions: Arc<AtomicU64>,
    idle_timeout: Duration,
}

/// Number that identifies a session within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionNumber(u64);

struct Ownership {
    holder: Holder,
    last_active: Instant,
    /// Lease that excludes other processes.
    ///
    /// A client without a session has no lease, because the end of the client would not be reported.
    lease: Option<ServiceLease>,
}

impl Ownership {
    /// Returns false if another process took over the lease while this process was stopped.
    fn is_in_force(&self) -> bool {
        self.lease.as_ref().is_none_or(ServiceLease::is_in_force)
    }
}

enum Holder {
    /// The agent belongs to the single session that registered it.
    Registered {
        session: SessionNumber,
        /// Number of calls in progress, for example a call that waits for messages.
        busy: usize,
        /// True if the transport reports the end of the session.
        reports_end: bool,
    },
    /// The agent belongs to clients that were configured for it.
    ///
    /// There may be several sessions, because the owner of the clients allowed that.
    Configured { sessions: usize },
}

/// Reason why a session cannot act for an agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnerConflict {
    /// Another session of this process owns the agent.
    Session {
        /// Time since the last call of the owning session.
        last_active: Duration,
    },
    /// Another process owns the agent.
    Process {
        /// Description of the owning process.
        holder: String,
    },
}

impl SessionOwners {
    pub(super) fn new(hub: Hub) -> Self {
        Self { hub, held: Arc::default(), sessions: Arc::default(), idle_timeout: IDLE_TIMEOUT }
    }

    /// Creates a registry in which an idle session can be replaced at once.
    #[cfg(test)]
    fn without_idle_timeout(hub: Hub) -> Self {
        Self { idle_timeout: Duration::ZERO, ..Self::new(hub) }
    }

    pub(super) fn new_session(&self) -> SessionNumber {
        SessionNumber(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// Acquires an agent for a session, unless another session owns the agent.
    ///
    /// `reports_end` means that [`SessionOwners::release`] is called when the session's client disconnects. A `key`
    /// that matches the lease of another process takes over the agent from that process.
    pub(super) fn acquire(
        &self,
        agent: &AgentId,
        session: SessionNumber,
        reports_end: bool,
        key: Option<&LeaseKey>,
    ) -> Result<Result<(), OwnerConflict>, HubError> {
        let mut held = self.held.lock();
        let agent_key = agent.key();
        if let Some(other) = held.get(&agent_key).filter(|other| other.is_in_force()) {
            let last_active = other.last_active.elapsed();
            let is_here = match &other.holder {
                Holder::Registered { session: holder, .. } if *holder == session => false,
                Holder::Registered { busy, reports_end, .. } => {
                    *reports_end || *busy > 0 || last_active < self.idle_timeout
                }
                Holder::Configured { sessions } => *sessions > 0 || last_active < self.idle_timeout,
            };
            if is_here {
                return Ok(Err(OwnerConflict::Session { last_active }));
            }
        }
        held.remove(&agent_key);
        let name = lease_name(&agent_key);
        let claimed = match key {
            Some(key) => self.hub.services().lease_with(&name, key),
            None => self.hub.services().lease(&name),
        };
        match claimed {
            Ok(lease) => {
                let holder = Holder::Registered { session, busy: 0, reports_end };
                held.insert(agent_key, Ownership { holder, last_active: Instant::now(), lease: Some(lease) });
                Ok(Ok(()))
            }
            Err(HubError::ServiceTaken { holder, .. }) => Ok(Err(OwnerConflict::Process { holder })),
            // The lock file cannot be created, but no other process can create it either, so continue without a lease.
            Err(error) if error.is_disk() => {
                let holder = Holder::Registered { session, busy: 0, reports_end };
                held.insert(agent_key, Ownership { holder, last_active: Instant::now(), lease: None });
                Ok(Ok(()))
            }
            Err(other) => Err(other),
        }
    }

    /// Adds a client that is configured for an agent.
    ///
    /// No session can then register the agent's name. `stays` means that the client has a session, whose end calls
    /// [`SessionOwners::remove_configured`]. Returns false if a session has already registered the name and keeps it.
    pub(super) fn add_configured(&self, agent: &AgentId, stays: bool) -> Result<bool, HubError> {
        let mut held = self.held.lock();
        let key = agent.key();
        let held = match held.entry(key) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => {
                let lease = match stays.then(|| self.hub.services().share(&lease_name(place.key()))) {
                    Some(Err(error)) if error.is_disk() => None,
                    Some(shared) => shared?,
                    None => None,
                };
                let holder = Holder::Configured { sessions: 0 };
                place.insert(Ownership { holder, last_active: Instant::now(), lease })
            }
        };
        let Holder::Configured { sessions } = &mut held.holder else { return Ok(false) };
        *sessions += usize::from(stays);
        held.last_active = Instant::now();
        Ok(true)
    }

    /// Removes a session of a configured client.
    pub(super) fn remove_configured(&self, agent: &AgentId) {
        let mut held = self.held.lock();
        let key = agent.key();
        if let Some(Ownership { holder: Holder::Configured { sessions }, .. }) = held.get_mut(&key) {
            *sessions = sessions.saturating_sub(1);
            if *sessions == 0 {
                held.remove(&key);
            }
        }
    }

    /// Returns true if a session owns the agent.
    ///
    /// Returns false if another process has taken over the agent.
    pub(super) fn is_held_by(&self, agent: &AgentId, session: SessionNumber) -> bool {
        let held = self.held.lock();
        let is_ours = |held: &Ownership| matches!(held.holder, Holder::Registered { session: holder, .. } if holder == session);
        held.get(&agent.key()).is_some_and(|held| is_ours(held) && held.is_in_force())
    }

    /// Starts a call of a session for the session's agent.
    ///
    /// Returns false if another session has taken over the agent.
    pub(super) fn start_call(&self, agent: &AgentId, session: SessionNumber) -> bool {
        self.is_held_by(agent, session) && self.update_busy(agent, session, |busy| *busy += 1)
    }

    /// Ends a call that [`SessionOwners::start_call`] started.
    pub(super) fn end_call(&self, agent: &AgentId, session: SessionNumber) {
        self.update_busy(agent, session, |busy| *busy = busy.saturating_sub(1));
    }

    /// Releases an agent that the session owns.
    pub(super) fn release(&self, agent: &AgentId, session: SessionNumber) {
        let mut held = self.held.lock();
        let key = agent.key();
        let is_ours = |held: &Ownership| matches!(held.holder, Holder::Registered { session: holder, .. } if holder == session);
        if held.get(&key).is_some_and(is_ours) {
            held.remove(&key);
        }
    }

    fn update_busy(
        &self,
        agent: &AgentId,
        session: SessionNumber,
        update_busy: impl FnOnce(&mut usize),
    ) -> bool {
        let mut held = self.held.lock();
        let Some(held) = held.get_mut(&agent.key()) else { return false };
        match &mut held.holder {
            Holder::Registered { session: holder, busy, .. } if *holder == session => {
                held.last_active = Instant::now();
                update_busy(busy);
                true
            }
            _ => false,
        }
    }
}

/// Returns the name of the lease for an agent's session.
fn lease_name(key: &str) -> String {
    format!("session.{key}")
}

#[cfg(test)]
#[path = "session_owners_tests.rs"]
mod tests;
