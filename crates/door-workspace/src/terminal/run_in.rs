//! `run_in_terminal`: sends input to another agent's terminal and waits for the result.

use std::time::Duration;

use switchboard_core::{Address, AgentId, Delivery, Kind, Message, MessageId, Name, ResolveError, resolve};
use switchboard_hub::HubError;

use super::permission::{EXECUTE, Refusal};
use super::results::ExecuteResult;
use super::serve::Target;
use crate::error::WorkspaceError;
use crate::ids;
use crate::workspace::{OutgoingMessage, Workspace, blocking};

/// Time limit for the result of typed input.
///
/// The protocol allows the host of a terminal ten seconds. The limit is longer, so that the host's answer or timeout is
/// known by then.
const RESULT_TIMEOUT: Duration = Duration::from_secs(12);

/// Input that was sent to a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRun {
    /// Id of the message that carries the input.
    pub id: MessageId,
    /// The message's protocol id.
    pub native_id: String,
    /// Outcome of the input.
    pub outcome: TerminalOutcome,
}

/// Outcome of input that was sent to a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalOutcome {
    /// The input was typed and submitted with one Enter.
    Executed,
    /// Typing was started but not finished, or the input may not have been typed at all. There is no retry.
    Failed {
        /// The reason of the failure.
        reason: String,
    },
    /// The input was not typed and never will be.
    Refused {
        /// The reason of the refusal.
        reason: String,
    },
    /// No process serves the terminal.
    ///
    /// The message stays in the mailbox. Input that was sent before the terminal started is never typed.
    Unattended {
        /// The reason, with the next step for the sender.
        reason: String,
    },
    /// The input is not typed yet, and the message waits in the mailbox.
    Queued {
        /// The reason of the delay.
        reason: String,
    },
}

impl Workspace {
    /// Sends input to an agent's terminal and waits for the outcome, for at most twelve seconds.
    ///
    /// Once this returns `Ok`, the message is in the journal, whatever the outcome. It is delivered by a process that
    /// has the workspace door open: this process, or the process that runs the terminal.
    pub async fn run_in_terminal(
        &self,
        from: &AgentId,
        name: &Name,
        input: String,
    ) -> Result<TerminalRun, WorkspaceError> {
        self.run_in_terminal_within(from, name, input, RESULT_TIMEOUT).await
    }

    pub(crate) async fn run_in_terminal_within(
        &self,
        from: &AgentId,
        name: &Name,
        input: String,
        timeout: Duration,
    ) -> Result<TerminalRun, WorkspaceError> {
        let terminal = self.hub().directory().await?.canonical(&AgentId::local(name.clone()));
        let kind = Kind::parse(EXECUTE).map_err(|_| WorkspaceError::Closed)?;
        let outgoing = OutgoingMessage::new(from.clone(), Address::Agent(terminal.clone()), kind, input);
        let accepted = self.send(outgoing).await?;
        let id = accepted.id;
        let outcome = match accepted.stopped {
            Some(stop) => TerminalOutcome::Refused { reason: stop.to_string() },
            None => self.terminal_outcome(id, &terminal, timeout).await?,
        };
        Ok(TerminalRun { id, native_id: ids::to_native(id), outcome })
    }

    /// Refuses an `execute` message that would never be typed because the recipient has no running terminal.
    ///
    /// If messages are forwarded, the terminal of the agent that finally gets the message is checked.
    pub async fn check_execute(&self, kind: &Kind, to: &Address) -> Result<(), WorkspaceError> {
        if kind.as_str() != EXECUTE {
            return Ok(());
        }
        let not_one = || WorkspaceError::NotOneTerminal { to: to.clone() };
        let named = to.as_agent().ok_or_else(not_one)?;
        let resolved = match resolve(to, &AgentId::human(), &*self.hub().directory().await?) {
            // An unknown agent may be a program that reads its mailbox as files; such a program has no terminal.
            Err(ResolveError::UnknownAgent { .. }) => Some(named.clone()),
            resolved => resolved.map_err(HubError::from)?.into_iter().next(),
        };
        let agent = resolved.filter(|agent| agent.realm.is_none()).ok_or_else(not_one)?;
        if self.is_terminal_served(&agent).await? {
            Ok(())
        } else {
            Err(WorkspaceError::NoTerminal { agent })
        }
    }

    /// Reports a dropped `execute` message as refused to its sender if no executor is running.
    ///
    /// A running executor would report the refusal itself.
    pub(crate) async fn refuse_untyped(
        &self,
        message: &Message,
        deliveries: &[Delivery],
    ) -> Result<(), WorkspaceError> {
        let Some(agent) = deliveries.first().map(|delivery| delivery.agent.clone()) else { return Ok(()) };
        if message.kind.as_str() != EXECUTE || self.is_terminal_served(&agent).await? {
            return Ok(());
        }
        let refusal = if message.to.as_agent().is_none() {
            Refusal::Group { to: message.to.clone() }
        } else if self.config().terminals.execute_from_files {
            Refusal::NoTerminal { agent: agent.clone() }
        } else {
            Refusal::Unverified
        };
        let result = ExecuteResult::Refused { reason: refusal.to_string() };
        let (tree, message, now) = (self.tree().clone(), message.clone(), self.hub().now());
        blocking(move || Ok(result.write(&tree, &message, &agent, now)?)).await
    }

    async fn terminal_outcome(
        &self,
        id: MessageId,
        terminal: &AgentId,
        timeout: Duration,
    ) -> Result<TerminalOutcome, WorkspaceError> {
        let Some(stored) = self.hub().journal().message(id).await? else {
            return Err(WorkspaceError::Closed);
        };
        if !self.is_terminal_served(terminal).await? {
            // The executor may have typed the message just before the executor ended.
            return Ok(self.known_outcome(&stored.message).await?.unwrap_or_else(|| TerminalOutcome::Unattended {
                reason: format!(
                    "no terminal of '{terminal}' runs; start it with `switchboard run --name \"{terminal}\" -- \
                     COMMAND` and send it again"
                ),
            }));
        }
        let mut changes = self.hub().changes();
        let reported = async {
            loop {
                if let Some(outcome) = self.known_outcome(&stored.message).await? {
                    return Ok::<_, WorkspaceError>(outcome);
                }
                changes.next().await;
            }
        };
        if let Ok(outcome) = tokio::time::timeout(timeout, reported).await {
            return outcome;
        }
        let detail = match self.waiting_reason(id).await? {
            Some(reason) => format!("not typed yet: {reason}"),
            None => format!("the terminal of '{terminal}' has not taken it within {} s", timeout.as_secs()),
        };
        let reason = format!("{detail}; ask later with `switchboard receipt {}`", ids::to_native(id));
        Ok(TerminalOutcome::Queued { reason })
    }

    /// Returns the reported result of an `execute` message.
    ///
    /// Returns `None` for other messages, and as long as there is no result.
    pub async fn execute_result(&self, message: &Message) -> Result<Option<ExecuteResult>, WorkspaceError> {
        if message.kind.as_str() != EXECUTE {
            return Ok(None);
        }
        let (tree, found) = (self.tree().clone(), message.clone());
        let result = blocking(move || Ok(ExecuteResult::read(&tree, &found)?)).await?;
        if result.is_some() {
            return Ok(result);
        }
        let Some(reason) = self.waiting_reason(message.id).await? else { return Ok(None) };
        let Some((_, receipt)) = self.hub().journal().receipt(message.id).await? else { return Ok(None) };
        // The message is no longer queued if it was read in another way, or if the terminal has ended.
        let waits = receipt.deliveries.iter().find(|delivery| delivery.state.is_waiting());
        let Some(delivery) = waits else { return Ok(None) };
        let is_worked = self.is_terminal_served(&delivery.agent).await?;
        Ok(is_worked.then_some(ExecuteResult::Queued { reason }))
    }

    async fn known_outcome(&self, message: &Message) -> Result<Option<TerminalOutcome>, WorkspaceError> {
        Ok(self.execute_result(message).await?.and_then(|result| match result {
            ExecuteResult::Executed => Some(TerminalOutcome::Executed),
            ExecuteResult::Failed { reason } => Some(TerminalOutcome::Failed { reason }),
            ExecuteResult::Refused { reason } => Some(TerminalOutcome::Refused { reason }),
            ExecuteResult::Queued { .. } => None,
        }))
    }

    /// Returns true if a process serves the terminal.
    ///
    /// This is `switchboard run`, or `serve` if it has an endpoint for the terminal.
    async fn is_terminal_served(&self, terminal: &AgentId) -> Result<bool, WorkspaceError> {
        if self.terminal_holder(terminal)?.is_some() {
            return Ok(true);
        }
        let targets = self.terminal_targets().await?;
        let is_target = targets.iter().any(|target: &Target| target.agent == *terminal);
        Ok(is_target && self.hub().services().holder("serve")?.is_some())
    }
}
