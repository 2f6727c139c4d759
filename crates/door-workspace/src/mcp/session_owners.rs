//! Which session speaks for which agent.
//!
//! A session that names its agent by registering must be the only one that speaks for it: otherwise any
//! session could read anybody's mail by calling itself that. Clients that their owner configured for an
//! agent may be several, and while one is there nobody registers the name. The claim is a lock of the operating system, so it
//! also holds against other processes and ends with the one that has it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use switchboard_core::AgentId;
use switchboard_hub::{Hub, HubError};
use switchboard_sys::service_lease::{LeaseKey, ServiceLease};

/// A session whose transport does not tell its end, and that was silent for so long, may be gone without a word: a
/// client of streamable HTTP that was killed says nothing. Then another session may take the agent over.
const SILENCE: Duration = Duration::from_mins(1);

/// The claims of this process.
#[derive(Clone)]
pub(super) struct SessionOwners {
    hub: Hub,
    held: Arc<Mutex<HashMap<String, Held>>>,
    sessions: Arc<AtomicU64>,
    silence: Duration,
}

/// The number of a session in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionNumber(u64);

struct Held {
    holder: Holder,
    heard: Instant,
    /// Keeps other processes away. A client without a session holds none: nobody would tell when it is gone.
    lock: Option<ServiceLease>,
}

impl Held {
    /// False if another process has taken the lease over while this one was stopped.
    fn is_in_force(&self) -> bool {
        self.lock.as_ref().is_none_or(ServiceLease::is_in_force)
    }
}

enum Holder {
    /// The one session that registered the agent.
    Registered {
        session: SessionNumber,
        /// Calls that are going on, such as one that waits for mail.
        busy: usize,
        /// Whether the session is there for as long as it is not over: its end will be told.
        tells_end: bool,
    },
    /// Sessions of clients that are configured for the agent, by its owner. There may be several.
    Configured { sessions: usize },
}

/// Why a session cannot speak for an agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Another session of this process does.
    Session {
        /// How long ago it was heard.
        heard: Duration,
    },
    /// Another process does.
    Process {
        /// Which, in words.
        holder: String,
    },
}

impl SessionOwners {
    pub(super) fn new(hub: Hub) -> Self {
        Self { hub, held: Arc::default(), sessions: Arc::default(), silence: SILENCE }
    }

    /// Claims among which a silent session counts as gone at once.
    #[cfg(test)]
    fn impatient(hub: Hub) -> Self {
        Self { silence: Duration::ZERO, ..Self::new(hub) }
    }

    pub(super) fn new_session(&self) -> SessionNumber {
        SessionNumber(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes an agent for a session, unless another one has it. `tells_end` says whether [`SessionOwners::release`] follows when
    /// its client is gone. With the key of the process that has it, the agent is taken over.
    pub(super) fn take(
        &self,
        agent: &AgentId,
        session: SessionNumber,
        tells_end: bool,
        key: Option<&LeaseKey>,
    ) -> Result<Result<(), Taken>, HubError> {
        let mut held = self.held.lock();
        let agent_key = agent.key();
        if let Some(other) = held.get(&agent_key).filter(|other| other.is_in_force()) {
            let heard = other.heard.elapsed();
            let is_here = match &other.holder {
                Holder::Registered { session: holder, .. } if *holder == session => false,
                Holder::Registered { busy, tells_end, .. } => *tells_end || *busy > 0 || heard < self.silence,
                Holder::Configured { sessions } => *sessions > 0 || heard < self.silence,
            };
            if is_here {
                return Ok(Err(Taken::Session { heard }));
            }
        }
        held.remove(&agent_key);
        let name = service(&agent_key);
        let claimed = match key {
            Some(key) => self.hub.lease_service_with(&name, key),
            None => self.hub.lease_service(&name),
        };
        match claimed {
            Ok(lock) => {
                let holder = Holder::Registered { session, busy: 0, tells_end };
                held.insert(agent_key, Held { holder, heard: Instant::now(), lock: Some(lock) });
                Ok(Ok(()))
            }
            Err(HubError::ServiceTaken { holder, .. }) => Ok(Err(Taken::Process { holder })),
            // A lock needs a file, and no other process can make one either.
            Err(error) if error.is_disk() => {
                let holder = Holder::Registered { session, busy: 0, tells_end };
                held.insert(agent_key, Held { holder, heard: Instant::now(), lock: None });
                Ok(Ok(()))
            }
            Err(other) => Err(other),
        }
    }

    /// Notes that a client which is configured for an agent is there, so that nobody else registers it.
    /// `stays` says whether that is a session, whose end [`SessionOwners::leave`] will tell.
    ///
    /// Says whether it counts: a session that registered the name before is not turned out.
    pub(super) fn arrive(&self, agent: &AgentId, stays: bool) -> Result<bool, HubError> {
        let mut held = self.held.lock();
        let key = agent.key();
        let held = match held.entry(key) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => {
                let lock = match stays.then(|| self.hub.share_service(&service(place.key()))) {
                    Some(Err(error)) if error.is_disk() => None,
                    Some(shared) => shared?,
                    None => None,
                };
                let holder = Holder::Configured { sessions: 0 };
                place.insert(Held { holder, heard: Instant::now(), lock })
            }
        };
        let Holder::Configured { sessions } = &mut held.holder else { return Ok(false) };
        *sessions += usize::from(stays);
        held.heard = Instant::now();
        Ok(true)
    }

    /// Notes that a session of a configured client is over.
    pub(super) fn leave(&self, agent: &AgentId) {
        let mut held = self.held.lock();
        let key = agent.key();
        if let Some(Held { holder: Holder::Configured { sessions }, .. }) = held.get_mut(&key) {
            *sessions = sessions.saturating_sub(1);
            if *sessions == 0 {
                held.remove(&key);
            }
        }
    }

    /// True if a session has its agent, and no other process has taken that over.
    pub(super) fn is_held_by(&self, agent: &AgentId, session: SessionNumber) -> bool {
        let held = self.held.lock();
        let is_ours = |held: &Held| matches!(held.holder, Holder::Registered { session: holder, .. } if holder == session);
        held.get(&agent.key()).is_some_and(|held| is_ours(held) && held.is_in_force())
    }

    /// Notes that a session is at work for its agent; false where another one has taken the agent over.
    pub(super) fn begin(&self, agent: &AgentId, session: SessionNumber) -> bool {
        self.is_held_by(agent, session) && self.change(agent, session, |busy| *busy += 1)
    }

    /// Notes that a call is over.
    pub(super) fn end(&self, agent: &AgentId, session: SessionNumber) {
        self.change(agent, session, |busy| *busy = busy.saturating_sub(1));
    }

    /// Lets an agent go.
    pub(super) fn release(&self, agent: &AgentId, session: SessionNumber) {
        let mut held = self.held.lock();
        let key = agent.key();
        let is_ours = |held: &Held| matches!(held.holder, Holder::Registered { session: holder, .. } if holder == session);
        if held.get(&key).is_some_and(is_ours) {
            held.remove(&key);
        }
    }

    fn change(&self, agent: &AgentId, session: SessionNumber, change: impl FnOnce(&mut usize)) -> bool {
        let mut held = self.held.lock();
        let Some(held) = held.get_mut(&agent.key()) else { return false };
        match &mut held.holder {
            Holder::Registered { session: holder, busy, .. } if *holder == session => {
                held.heard = Instant::now();
                change(busy);
                true
            }
            _ => false,
        }
    }
}

/// The lock that stands for an agent's session.
fn service(key: &str) -> String {
    format!("session.{key}")
}

#[cfg(test)]
#[path = "session_owners_tests.rs"]
mod tests;
