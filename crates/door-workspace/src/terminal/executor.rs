//! Executor of an agent's terminal.
//!
//! It ensures that only one process at a time types for the agent.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use switchboard_core::{AgentId, Door, Message, MessageId, Name};
use switchboard_hub::{Changes, HubError, MailboxQuery, Part};
use switchboard_sys::service_lease::ServiceLease;

use super::permission::{EXECUTE, Permission, Refusal, text_to_type};
use super::results::ExecuteResult;
use crate::error::WorkspaceError;
use crate::workspace::{Workspace, blocking};

/// Notes topic: the messages that are being typed, each with its recipient.
const TYPING: &str = "typing";

/// Notes topic: the messages that are not typed yet, each with the reason.
const NOT_TYPED: &str = "not typed";

/// Mailbox messages per page.
const PAGE: usize = 100;

/// Maximum number of retries to acquire the lease.
///
/// A process that queries the holder takes the lease for an instant.
const ACQUIRE_TRIES: u32 = 20;
const ACQUIRE_PAUSE: Duration = Duration::from_millis(25);

/// Start mark: only messages after this moment are typed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartMark {
    pub(crate) seq: i64,
    pub(crate) at: Timestamp,
}

/// Exclusive lease on typing for one agent, and the queue of the agent's `execute` messages.
///
/// There is one executor per agent and workspace, across processes. The lease is released on drop, and when the process
/// dies. A message is typed at most once, because it is recorded on disk before the first byte is typed. After a crash,
/// the message may have been typed partly or not at all; the next executor reports that to the sender.
pub struct TerminalExecutor {
    workspace: Workspace,
    agent: AgentId,
    permission: Permission,
    changes: Changes,
    /// Journal number up to which every message for this agent has been processed.
    cursor: i64,
    /// Messages after the cursor that were refused or typed. Cleared when the cursor advances.
    done: HashSet<MessageId>,
    /// Last journal number at the time when a poll found no more messages.
    idle_at: Option<i64>,
    service: Option<ServiceLease>,
}

/// An `execute` message that may be typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteRequest {
    /// The message to type.
    pub message: Message,
    /// Sanitized text of the message, without the final Enter.
    pub text: String,
    seq: i64,
}

impl Workspace {
    /// Acquires an agent's terminal. Messages that are already waiting are never typed.
    pub async fn acquire_terminal(&self, agent: &Name) -> Result<TerminalExecutor, WorkspaceError> {
        let mark = self.terminal_mark().await?;
        self.acquire_terminal_since(agent, mark).await
    }

    /// Returns the start mark for the current moment.
    ///
    /// First ingests every file in the mailboxes, so that any file found later arrived later.
    pub(crate) async fn terminal_mark(&self) -> Result<StartMark, WorkspaceError> {
        let at = self.hub().now();
        self.scan_changed().await?;
        Ok(StartMark { seq: last_seq(self).await?, at })
    }

    async fn acquire_terminal_since(
        &self,
        agent: &Name,
        mark: StartMark,
    ) -> Result<TerminalExecutor, WorkspaceError> {
        let agent = self.hub().directory().await?.canonical(&AgentId::local(agent.clone()));
        let mut executor = TerminalExecutor::without_lease(self, &agent, mark);
        executor.service = Some(acquire_lease(self, &agent).await?);
        executor.complete_interrupted().await?;
        Ok(executor)
    }

    /// Returns the reason why a message is not typed yet, if known.
    pub(crate) async fn waiting_reason(&self, id: MessageId) -> Result<Option<String>, WorkspaceError> {
        Ok(self.hub().notes(Door::Workspace).get(NOT_TYPED, &id.to_string()).await?)
    }

    /// Describes the process that currently types for an agent.
    pub(crate) fn terminal_holder(&self, agent: &AgentId) -> Result<Option<String>, WorkspaceError> {
        Ok(self.hub().services().holder(&service_name(agent))?)
    }
}

fn service_name(agent: &AgentId) -> String {
    format!("terminal.{}", agent.name.key())
}

/// Acquires the lease with retries.
///
/// A process that queries the holder takes the lease for an instant.
async fn acquire_lease(workspace: &Workspace, agent: &AgentId) -> Result<ServiceLease, WorkspaceError> {
    let mut tries = 0;
    loop {
        match workspace.hub().services().lease(&service_name(agent)) {
            Err(HubError::ServiceTaken { .. }) if tries < ACQUIRE_TRIES => {
                tries += 1;
                tokio::time::sleep(ACQUIRE_PAUSE).await;
            }
            Err(HubError::ServiceTaken { holder, .. }) => {
                return Err(WorkspaceError::TerminalTaken { agent: agent.name.clone(), holder });
            }
            claimed => return Ok(claimed?),
        }
    }
}

async fn last_seq(workspace: &Workspace) -> Result<i64, WorkspaceError> {
    let newest = workspace.hub().journal().newest(1).await?;
    Ok(newest.items.last().map_or(0, |stored| stored.seq))
}

impl TerminalExecutor {
    /// Creates an executor that acquires the lease only while there is work.
    pub(crate) fn without_lease(workspace: &Workspace, agent: &AgentId, mark: StartMark) -> Self {
        let from_files = workspace.config().terminals.execute_from_files;
        Self {
            workspace: workspace.clone(),
            agent: agent.clone(),
            permission: Permission { after: mark.seq, began: mark.at, from_files },
            changes: workspace.hub().changes(),
            cursor: 0,
            done: HashSet::new(),
            idle_at: None,
            service: None,
        }
    }

    /// Acquires the lease if there may be work and no other process holds it.
    pub(crate) async fn acquire_for_work(&mut self) -> Result<bool, WorkspaceError> {
        if self.idle_at == Some(last_seq(&self.workspace).await?) {
            return Ok(false);
        }
        match self.workspace.hub().services().lease(&service_name(&self.agent)) {
            Ok(service) => self.service = Some(service),
            Err(HubError::ServiceTaken { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.complete_interrupted().await?;
        Ok(true)
    }

    /// Releases the lease until there is work again.
    pub(crate) fn release(&mut self) {
        self.service = None;
    }

    /// Waits for a change that may have brought new work.
    pub(crate) async fn changed(&mut self) {
        self.changes.next().await;
    }

    /// Returns the agent for which this executor types.
    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// Returns the workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Returns the last journal number before the executor was acquired.
    pub(crate) fn since(&self) -> i64 {
        self.permission.after
    }

    /// Waits for the next message that may be typed.
    ///
    /// Refuses the messages in front of it that may not be typed. Cancel-safe.
    pub async fn next(&mut self) -> Result<ExecuteRequest, WorkspaceError> {
        loop {
            if let Some(execute) = self.poll().await? {
                return Ok(execute);
            }
            self.changes.next().await;
        }
    }

    /// Returns the next message that may be typed now, in order of acceptance.
    pub(crate) async fn poll(&mut self) -> Result<Option<ExecuteRequest>, WorkspaceError> {
        // Read `last` first: a message accepted after this read has a higher number, so no message is skipped.
        let last = last_seq(&self.workspace).await?;
        if self.idle_at == Some(last) {
            return Ok(None);
        }
        let hub = self.workspace.hub();
        let is_complete = hub.mailboxes().pending_files(self.agent.clone()).await?.is_empty();
        let mut after = self.cursor;
        loop {
            let query = MailboxQuery { agent: self.agent.clone(), after, limit: PAGE, part: Part::Waiting };
            let page = self.workspace.hub().mailboxes().page(query).await?;
            for mail in page.items {
                let (message, seq) = (mail.stored.message, mail.stored.seq);
                after = seq;
                if message.kind.as_str() != EXECUTE || self.done.contains(&message.id) {
                    continue;
                }
                match self.check_permission(&message, seq).await? {
                    Ok(text) => return Ok(Some(ExecuteRequest { message, text, seq })),
                    Err(refusal) => self.refuse(&message, &refusal).await?,
                }
            }
            if !page.more {
                break;
            }
        }
        if is_complete {
            self.cursor = self.cursor.max(last);
            self.done.clear();
        }
        self.idle_at = is_complete.then_some(last);
        Ok(None)
    }

    /// Records on disk that a message is about to be typed.
    ///
    /// Returns false if the message may no longer be typed: it was acknowledged or has expired, or its sender was
    /// removed.
    pub async fn start(&mut self, execute: &ExecuteRequest) -> Result<bool, WorkspaceError> {
        let id = execute.message.id;
        let is_waiting = match self.workspace.hub().journal().receipt(id).await? {
            Some((_, receipt)) => {
                receipt.deliveries.iter().any(|d| d.agent == self.agent && d.state.is_waiting())
            }
            None => false,
        };
        if !is_waiting || self.service.is_none() || !self.done.insert(id) {
            return Ok(false);
        }
        if let Err(refusal) = self.check_permission(&execute.message, execute.seq).await? {
            self.refuse(&execute.message, &refusal).await?;
            return Ok(false);
        }
        let (key, agent) = (id.to_string(), self.agent.to_string());
        self.workspace.hub().notes(Door::Workspace).put(TYPING, key, Some(agent)).await?;
        Ok(true)
    }

    /// Records the reason why a message is not typed yet, for its sender. The message stays in the mailbox.
    pub async fn record_waiting(&self, execute: &ExecuteRequest, reason: &str) -> Result<(), WorkspaceError> {
        let (key, reason) = (execute.message.id.to_string(), reason.to_owned());
        Ok(self.workspace.hub().notes(Door::Workspace).put(NOT_TYPED, key, Some(reason)).await?)
    }

    /// Requeues a message whose typing was started but of which nothing was submitted.
    pub async fn requeue(&mut self, execute: &ExecuteRequest, reason: &str) -> Result<(), WorkspaceError> {
        self.record_waiting(execute, reason).await?;
        let key = execute.message.id.to_string();
        self.workspace.hub().notes(Door::Workspace).put(TYPING, key, None).await?;
        self.done.remove(&execute.message.id);
        self.idle_at = None;
        Ok(())
    }

    /// Records the result of a message, archives the message and reports the result to its sender.
    pub async fn finish(
        &self,
        execute: &ExecuteRequest,
        result: ExecuteResult,
    ) -> Result<(), WorkspaceError> {
        self.complete(&execute.message, result).await
    }

    async fn check_permission(
        &self,
        message: &Message,
        seq: i64,
    ) -> Result<Result<String, Refusal>, WorkspaceError> {
        let hub = self.workspace.hub();
        let directory = hub.directory().await?;
        Ok(text_to_type(message, seq, &directory, &self.permission, hub.now()))
    }

    async fn refuse(&mut self, message: &Message, refusal: &Refusal) -> Result<(), WorkspaceError> {
        tracing::info!(id = %message.id, reason = %refusal, "an execute message was refused");
        self.done.insert(message.id);
        self.record(message, ExecuteResult::Refused { reason: refusal.to_string() }).await
    }

    async fn record(&self, message: &Message, result: ExecuteResult) -> Result<(), WorkspaceError> {
        let (hub, key) = (self.workspace.hub(), message.id.to_string());
        if hub.notes(Door::Workspace).get(NOT_TYPED, &key).await?.is_some() {
            hub.notes(Door::Workspace).put(NOT_TYPED, key, None).await?;
        }
        let (tree, now) = (self.workspace.tree().clone(), self.workspace.hub().now());
        let (message, agent) = (message.clone(), self.agent.clone());
        blocking(move || Ok(result.write(&tree, &message, &agent, now)?)).await
    }

    /// Completes a message: acknowledges it in the journal, archives its file, and writes the result record.
    ///
    /// The record comes last, so that its existence implies that all steps are done. After a crash, the next executor
    /// finds the message still recorded as being typed and repeats these steps.
    async fn complete(&self, message: &Message, result: ExecuteResult) -> Result<(), WorkspaceError> {
        let hub = self.workspace.hub();
        hub.mailboxes().acknowledge(self.agent.clone(), message.id, Some(result.note())).await?;
        self.workspace.archive(&self.agent, message.id).await?;
        self.record(message, result).await?;
        Ok(hub.notes(Door::Workspace).put(TYPING, message.id.to_string(), None).await?)
    }

    /// Completes messages that an earlier executor started.
    ///
    /// A message gets its result if the result is known; otherwise it is reported as possibly not typed.
    async fn complete_interrupted(&self) -> Result<(), WorkspaceError> {
        let hub = self.workspace.hub();
        let directory = hub.directory().await?;
        for (key, agent) in hub.notes(Door::Workspace).all(TYPING).await? {
            let is_ours = agent.parse().is_ok_and(|agent: AgentId| directory.canonical(&agent) == self.agent);
            let Some(id) = key.parse::<MessageId>().ok().filter(|_| is_ours) else { continue };
            let Some((stored, receipt)) = hub.journal().receipt(id).await? else {
                hub.notes(Door::Workspace).put(TYPING, key, None).await?;
                continue;
            };
            let delivery = receipt.deliveries.iter().find(|delivery| delivery.agent == self.agent);
            let noted = delivery.and_then(|delivery| ExecuteResult::from_note(delivery.note.as_deref()?));
            let result = noted.unwrap_or_else(|| ExecuteResult::Failed {
                reason: "the terminal ended while it was being typed: it may not have been typed, or not in \
                         full, and is not typed again"
                    .to_owned(),
            });
            self.complete(&stored.message, result).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
