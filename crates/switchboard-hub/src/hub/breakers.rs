//! Access to the circuit breakers: the messages that they stop and the tokens that they count.

use switchboard_core::{AgentId, MessageId};

use super::Hub;
use crate::activity;
use crate::breakers::{self, ResumedMessage, StoppedMessage};
use crate::error::HubError;

/// Selection of stopped messages to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All stopped messages.
    All,
    /// The messages that concern an agent.
    Agent(AgentId),
    /// The messages in the conversation of a message.
    Thread(MessageId),
}

/// Access to circuit breakers: lists and resumes stopped messages, and counts tokens.
#[derive(Clone, Copy)]
pub struct Breakers<'h> {
    pub(super) hub: &'h Hub,
}

impl Breakers<'_> {
    /// Lists the messages that breakers have stopped, oldest first.
    pub async fn stopped(self) -> Result<Vec<StoppedMessage>, HubError> {
        self.hub.read(breakers::list).await
    }

    /// Resumes stopped messages: delivers them and resets their breakers. Only a person may request it.
    pub async fn resume(self, selection: Selection) -> Result<Vec<ResumedMessage>, HubError> {
        self.hub
            .write(move |tx| {
                let agent = match &selection {
                    Selection::Agent(agent) => Some(tx.directory.value.canonical(agent)),
                    _ => None,
                };
                let resumed = breakers::resume(tx, |stopped| match (&selection, &agent) {
                    (Selection::All, _) => true,
                    (Selection::Thread(thread), _) => stopped.stored.message.thread == *thread,
                    (_, Some(agent)) => stopped.concerns(agent),
                    (_, None) => false,
                })?;
                for resumed_message in &resumed {
                    let id = resumed_message.stopped.stored.message.id.to_string();
                    activity::note(
                        tx,
                        &AgentId::human(),
                        "resumed",
                        &id,
                        Some(&resumed_message.stopped.reason),
                    )?;
                }
                Ok(resumed)
            })
            .await
    }

    /// Charges tokens that an agent's model used, as reported to its door, to the agent's budget.
    pub async fn record_tokens(self, agent: AgentId, tokens: u64) -> Result<(), HubError> {
        self.hub
            .write(move |tx| {
                let agent = tx.directory.value.canonical(&agent);
                breakers::charge(tx, &agent, 0, tokens)
            })
            .await
    }
}
