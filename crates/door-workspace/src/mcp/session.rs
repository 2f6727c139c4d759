//! Whom a session speaks for.

use parking_lot::Mutex;
use switchboard_core::{AgentId, Name};
use switchboard_hub::Hub;
use switchboard_mcp::{Caller, Connection, Transport};
use switchboard_sys::service_lease::LeaseKey;

use super::answer::ToolError;
use super::server::ToolConfig;
use super::session_owners::{SessionNumber, SessionOwners, Taken};

/// One session: its agent, once that is known.
pub(super) struct Session {
    owners: SessionOwners,
    number: SessionNumber,
    /// What the client was configured for: `SWITCHBOARD_AGENT_NAME` or `--from`.
    configured: Option<AgentId>,
    lease_key: Option<LeaseKey>,
    connection: Connection,
    /// What was registered first.
    registered: Mutex<Option<AgentId>>,
    /// The agent that this session was noted for, where its client is configured for one.
    arrived: Mutex<Option<AgentId>>,
}

/// A call that is going on for an agent.
pub(super) struct Call<'s> {
    session: &'s Session,
    agent: Option<AgentId>,
}

impl Session {
    pub(super) fn new(owners: SessionOwners, config: &ToolConfig) -> Self {
        let number = owners.new_session();
        let ToolConfig { profile: _, agent, lease_key, connection } = config.clone();
        let (registered, arrived) = (Mutex::default(), Mutex::default());
        Self { owners, number, configured: agent, lease_key, connection, registered, arrived }
    }

    pub(super) fn owners(&self) -> &SessionOwners {
        &self.owners
    }

    /// The agent that is known to be at the other end.
    pub(super) fn agent(&self, caller: &Caller) -> Option<AgentId> {
        let named = caller.agent.as_deref().and_then(|name| Name::parse(name).ok()).map(AgentId::local);
        named.or_else(|| self.configured.clone()).or_else(|| self.registered.lock().clone())
    }

    /// Whether the agent is what somebody configured, and not what the session itself said.
    pub(super) fn is_configured(&self, caller: &Caller) -> bool {
        caller.agent.is_some() || self.configured.is_some()
    }

    /// Check that the session's client is there and that no other session has its agent, for any thread at any later time.
    pub(super) fn is_there(&self) -> impl FnOnce() -> bool + Send + 'static {
        let (connection, owners, number) = (self.connection.clone(), self.owners.clone(), self.number);
        let registered = self.registered.lock().clone();
        move || !connection.is_closed() && registered.is_none_or(|agent| owners.is_held_by(&agent, number))
    }

    /// Begins a call.
    pub(super) fn begin(&self, caller: &Caller) -> Result<Call<'_>, ToolError> {
        if self.connection.is_closed() {
            return Err(ToolError::new("The client has closed the connection"));
        }
        let agent = self.agent(caller);
        if agent.as_ref().is_some_and(AgentId::is_human) {
            return Err(not_the_person());
        }
        if let Some(agent) = agent.as_ref().filter(|_| self.is_configured(caller)) {
            self.arrive(agent, caller)?;
        } else if let Some(agent) = &agent
            && !self.owners.begin(agent, self.number)
        {
            *self.registered.lock() = None;
            return Err(ToolError::new(format!(
                "This session was silent or stopped and another one has taken over '{agent}'"
            ))
            .next("Register again, under another name if both go on."));
        }
        Ok(Call { session: self, agent })
    }

    /// Notes that the agent of a configured client is there.
    fn arrive(&self, agent: &AgentId, caller: &Caller) -> Result<(), ToolError> {
        let stays = caller.transport != Transport::Stateless;
        let mut arrived = self.arrived.lock();
        if arrived.is_none() && self.owners.arrive(agent, stays)? && stays {
            *arrived = Some(agent.clone());
        }
        Ok(())
    }

    /// Makes an agent this session's own. Says whether it became so only now.
    pub(super) fn bind(&self, agent: &AgentId, caller: &Caller, hub: &Hub) -> Result<bool, ToolError> {
        if agent.is_human() {
            return Err(not_the_person());
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
        // A session over pipes or `/sse` ends with its connection; one over `/mcp` has none.
        let tells_end = matches!(caller.transport, Transport::Stdio | Transport::Sse);
        match self.owners.take(agent, self.number, tells_end, self.lease_key.as_ref()) {
            Ok(Ok(())) => {}
            Ok(Err(taken)) => return Err(refusal(agent, &taken)),
            Err(error) => return Err(error.into()),
        }
        tracing::debug!(%agent, hub = %hub.folder().path().display(), "a session speaks for an agent");
        *self.registered.lock() = Some(agent.clone());
        Ok(true)
    }

    /// Takes back what [`Session::bind`] did, where the registration then failed.
    pub(super) fn unbind(&self, agent: &AgentId) {
        *self.registered.lock() = None;
        self.owners.release(agent, self.number);
    }
}

/// A model that spoke as the person could lift every limit that waits for a person.
fn not_the_person() -> ToolError {
    ToolError::new("'human' is the person who owns this workspace")
        .next("Choose a name for the agent, for example the name of its program.")
}

fn refusal(agent: &AgentId, taken: &Taken) -> ToolError {
    let by = match taken {
        Taken::Session { heard } => format!("another session, heard {} s ago", heard.as_secs()),
        Taken::Process { holder } => holder.clone(),
    };
    ToolError::new(format!("'{agent}' is in use by {by}")).next(
        "Choose another name. If it is you after a restart, end the old client or try again in a minute.",
    )
}

impl Call<'_> {
    /// The agent that the call is made for, if that is known.
    pub(super) fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(agent) = &self.agent {
            self.session.owners.end(agent, self.session.number);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(agent) = self.registered.get_mut() {
            self.owners.release(agent, self.number);
        }
        if let Some(agent) = self.arrived.get_mut() {
            self.owners.leave(agent);
        }
    }
}
