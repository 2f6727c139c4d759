//! Actor of an action: an agent or the person, in a workspace.

use door_workspace::Workspace;
use switchboard_core::{AgentId, AgentRecord, Directory, Name, Receipt, resolve};
use switchboard_hub::{HubError, Stored};

use crate::error::ActionError;

/// An agent, or the person, that acts in a workspace.
#[derive(Clone, Copy)]
pub struct Actor<'a> {
    /// The workspace.
    pub workspace: &'a Workspace,
    /// The agent that acts; `human` for the person.
    pub agent: &'a AgentId,
}

impl<'a> Actor<'a> {
    /// Creates the actor of an action.
    pub fn new(workspace: &'a Workspace, agent: &'a AgentId) -> Self {
        Self { workspace, agent }
    }

    /// Returns the agent's current name. Fails unless the agent is registered or the person.
    ///
    /// Claims and reservations show the name to others, and an unknown name is most likely a typing error.
    pub(crate) async fn registered(&self) -> Result<AgentId, ActionError> {
        let directory = self.workspace.hub().directory().await?;
        if self.agent.is_human() || directory.agent(self.agent).is_some() {
            return Ok(directory.canonical(self.agent));
        }
        Err(unknown_agent(self.agent, &directory))
    }
}

/// Returns true if an agent may see a message and its receipt.
///
/// The person may see all of them, and an agent those of messages that it sent or received.
pub(crate) fn may_read(me: &AgentId, stored: &Stored, receipt: &Receipt) -> bool {
    me.is_human()
        || stored.message.from == *me
        || receipt.deliveries.iter().any(|delivery| delivery.agent == *me)
}

/// Returns the record of a registered agent. The error for another name suggests similar names.
pub async fn known_agent(workspace: &Workspace, name: &str) -> Result<AgentRecord, ActionError> {
    let id = AgentId::local(Name::parse(name)?);
    let directory = workspace.hub().directory().await?;
    match directory.agent(&id) {
        Some(record) => Ok(record.clone()),
        None => Err(unknown_agent(&id, &directory)),
    }
}

/// Builds the error for an agent that is not registered.
fn unknown_agent(agent: &AgentId, directory: &Directory) -> ActionError {
    match resolve(&agent.clone().into(), &AgentId::human(), directory) {
        Err(error) => HubError::from(error).into(),
        // The person has a mailbox without a registration, and an agent of another hub has no mailbox here.
        Ok(_) if agent.is_human() => {
            HubError::ReservedName { name: Name::human(), reserved_for: "the person" }.into()
        }
        Ok(_) => ActionError::NotLocal { agent: agent.clone() },
    }
}
