//! What agents take on, and what keeps them from taking on too much.

use switchboard_core::{AgentId, MessageId};

use super::Hub;
use crate::breakers::{self, Resumed, Stopped};
use crate::error::HubError;

/// What a person lets go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Everything.
    All,
    /// What concerns an agent.
    Agent(AgentId),
    /// The conversation of a message.
    Thread(MessageId),
}

impl Hub {
    /// What the rules against storms and costs have stopped, oldest first.
    pub async fn stopped(&self) -> Result<Vec<Stopped>, HubError> {
        self.read(breakers::list).await
    }

    /// Lets what was stopped go on: it is delivered, and its rules count anew. Only for a person to ask.
    pub async fn resume(&self, selection: Selection) -> Result<Vec<Resumed>, HubError> {
        self.write(move |tx| {
            let agent = match &selection {
                Selection::Agent(agent) => Some(tx.directory.value.canonical(agent)),
                _ => None,
            };
            breakers::resume(tx, |stopped| match (&selection, &agent) {
                (Selection::All, _) => true,
                (Selection::Thread(thread), _) => stopped.stored.message.thread == *thread,
                (_, Some(agent)) => stopped.concerns(agent),
                (_, None) => false,
            })
        })
        .await
    }

    /// Notes tokens that an agent's model has used, as its door was told. They count for its budget.
    pub async fn note_tokens(&self, agent: AgentId, tokens: u64) -> Result<(), HubError> {
        self.write(move |tx| {
            let agent = tx.directory.value.canonical(&agent);
            breakers::charge(tx, &agent, 0, tokens)
        })
        .await
    }
}
