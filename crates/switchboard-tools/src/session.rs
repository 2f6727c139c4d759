//! Session state: the agent that a session acts for.

use parking_lot::Mutex;
use switchboard_core::{AgentId, Name};
use switchboard_hub::Hub;
use switchboard_mcp::{Caller, Connection, Transport};
use switchboard_sys::service_lease::LeaseKey;

use super::answer::ToolError;
use super::server::ToolConfig;
use super::session_owners::{OwnerConflict, SessionNumber, SessionOwners};

/// A session and, once known, the agent that the session acts for.
pub(super) struct Session {
    owners: SessionOwners,
    number: SessionNumber,
    /// The agent that the client was configured for: `SWITCHBOARD_AGENT_NAME` or `--from`.
    configured: Option<AgentId>,
    lease_key: Option<LeaseKey>,
    connection: Connection,
    /// The agent that the session registered first.
    registered: Mutex<Option<AgentId>>,
    /// The configured agent for which this session was added to the session owners.
    counted: Mutex<Option<AgentId>>,
}

/// A call in progress. Dropping it ends the call.
pub(super) struct Call<'s> {
    session: &'s Session,
    agent: Option<AgentId>,
}

impl Session {
    pub(super) fn new(owners: SessionOwners, config: &ToolConfig) -> Self {
        let number = owners.new_session();
        let ToolConfig { profile: _, agent, lease_key, connection } = config.clone();
        let (registered, counted) = (Mutex::default(), Mutex::default());
        Self { owners, number, configured: agent, lease_key, connection, registered, counted }
    }

    pub(super) fn owners(&self) -> &SessionOwners {
        &self.owners
    }

    /// Returns the agent of a caller, if known.
    pub(super) fn agent(&self, caller: &Caller) -> Option<AgentId> {
        let named = caller.agent.as_deref().and_then(|name| Name::parse(name).ok()).map(AgentId::local);
        named.or_else(|| self.configured.clone()).or_else(|| self.registered.lock().clone())
    }

    /// Returns true if the agent was configured rather than registered by the session.
    pub(super) fn is_configured(&self, caller: &Caller) -> bool {
        caller.agent.is_some() || self.configured.is_some()
    }

    /// Returns a check that can be run on any thread at a later time.
    ///
    /// The check succeeds if the client is still connected and no other session has taken over the session's agent.
    pub(super) fn connection_check(&self) -> impl FnOnce() -> bool + Send + 'static {
        let (connection, owners, number) = (self.connection.clone(), self.owners.clone(), self.number);
        let registered = self.registered.lock().clone();
        move || !connection.is_closed() && registered.is_none_or(|agent| owners.is_held_by(&agent, number))
    }

    /// Starts a call, unless the connection is closed or the session has lost its agent.
    pub(super) fn start_call(&self, caller: &Caller) -> Result<Call<'_>, ToolError> {
        if self.connection.is_closed() {
            return Err(ToolError::new("The client has closed the connection"));
        }
        let agent = self.agent(caller);
        if agent.as_ref().is_some_and(AgentId::is_human) {
            return Err(refuse_human());
        }
        if let Some(agent) = agent.as_ref().filter(|_| self.is_configured(caller)) {
            self.count_configured(agent, caller)?;
        } else if let Some(agent) = &agent
            && !self.owners.start_call(agent, self.number)
        {
            *self.registered.lock() = None;
            return Err(ToolError::new(format!(
                "This session was silent or stopped and another one has taken over '{agent}'"
            ))
            .next("Register again, under another name if both go on."));
        }
        Ok(Call { session: self, agent })
    }

    /// Adds the session of a configured client to the session owners.
    fn count_configured(&self, agent: &AgentId, caller: &Caller) -> Result<(), ToolError> {
        let stays = caller.transport != Transport::Stateless;
        let mut counted = self.counted.lock();
        if counted.is_none() && self.owners.add_configured(agent, stays)? && stays {
            *counted = Some(agent.clone());
        }
        Ok(())
    }

    /// Binds the session to an agent. Returns true if the session was not bound before.
    pub(super) fn bind(&self, agent: &AgentId, caller: &Caller, hub: &Hub) -> Result<bool, ToolError> {
        if agent.is_human() {
            return Err(refuse_human());
        }
        if let Some(own) = self.agent(caller) {
            return if own == *agent {
                Ok(false)
            } else {
                Err(ToolError::new(format!("This session speaks for '{own}' and cannot become '{agent}'"))
                    .next("Another agent needs a session of its own."))
            };
        }
        if caller.transport == Transport::Stateless {
            return Err(ToolError::new("This client keeps no session, so a registration would be forgotten")
                .next(format!(
                    "Set the header '{}: {agent}' in the client's configuration.",
                    switchboard_mcp::AGENT_HEADER
                )));
        }
        // A session over pipes or `/sse` ends with its connection, whereas a session over `/mcp` has no connection.
        let reports_end = matches!(caller.transport, Transport::Stdio | Transport::Sse);
        match self.owners.acquire(agent, self.number, reports_end, self.lease_key.as_ref()) {
            Ok(Ok(())) => {}
            Ok(Err(conflict)) => return Err(refusal(agent, &conflict)),
            Err(error) => return Err(error.into()),
        }
        tracing::debug!(%agent, hub = %hub.folder().path().display(), "a session acts for an agent");
        *self.registered.lock() = Some(agent.clone());
        Ok(true)
    }

    /// Reverts [`Session::bind`] after a failed registration.
    pub(super) fn unbind(&self, agent: &AgentId) {
        *self.registered.lock() = None;
        self.owners.release(agent, self.number);
    }
}

/// Returns the error for a session that wants to act as the person.
///
/// A model that acts as the person could lift every limit that only a person may lift.
fn refuse_human() -> ToolError {
    ToolError::new("'human' is the person who owns this workspace")
        .next("Choose a name for the agent, for example the name of its program.")
}

fn refusal(agent: &AgentId, conflict: &OwnerConflict) -> ToolError {
    let by = match conflict {
        OwnerConflict::Session { last_active } => {
            format!("another session, active {} s ago", last_active.as_secs())
        }
        OwnerConflict::Process { holder } => holder.clone(),
    };
    ToolError::new(format!("'{agent}' is in use by {by}")).next(
        "Choose another name. If it is you after a restart, end the old client or try again in a minute.",
    )
}

impl Call<'_> {
    /// Returns the agent of the call, if known.
    pub(super) fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(agent) = &self.agent {
            self.session.owners.end_call(agent, self.session.number);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(agent) = self.registered.get_mut() {
            self.owners.release(agent, self.number);
        }
        if let Some(agent) = self.counted.get_mut() {
            self.owners.remove_configured(agent);
        }
    }
}
