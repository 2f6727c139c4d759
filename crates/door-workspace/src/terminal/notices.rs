//! Notices of new messages, typed into terminals whose owner enabled them.

use switchboard_core::{AgentId, Door, MessageId};
use switchboard_hub::{Changes, DisplayLease, DisplayMode, MailboxMessage, MailboxQuery, Part};

use super::executor::TerminalExecutor;
use super::permission::EXECUTE;
use crate::error::WorkspaceError;
use crate::translate::iso;
use crate::workspace::Workspace;

/// Notes topic: the last notice typed for each agent.
///
/// A notice is not a message, so it is not in the journal. One per agent is enough to answer "who typed that?".
const NOTICES: &str = "terminal notices";

/// Maximum number of messages counted in a notice.
const MAX_COUNTED: usize = 100;
const MAX_NAMED: usize = 3;

/// Source of notices about an agent's new messages.
///
/// Only one notice is outstanding at a time. The next notice follows when the agent has read the oldest message that
/// the last notice announced.
pub struct Notices {
    workspace: Workspace,
    agent: AgentId,
    after: i64,
    changes: Changes,
    outstanding: Option<MessageId>,
}

/// A notice that is ready to be typed.
pub struct Notice {
    /// The line to type.
    pub text: String,
    hold: DisplayLease,
    ids: Vec<MessageId>,
    oldest: Option<MessageId>,
}

impl Notices {
    /// Creates a source of notices for messages accepted after `executor` was acquired.
    pub fn new(executor: &TerminalExecutor) -> Self {
        let workspace = executor.workspace().clone();
        let changes = workspace.hub().changes();
        Self {
            agent: executor.agent().clone(),
            after: executor.since(),
            workspace,
            changes,
            outstanding: None,
        }
    }

    /// Waits until there are messages to announce. Cancel-safe.
    pub async fn wait(&mut self) -> Result<(), WorkspaceError> {
        while self.poll_mail().await?.is_none() {
            self.changes.next().await;
        }
        Ok(())
    }

    /// Returns the notice to type now, or `None` if none is needed any more.
    ///
    /// Messages that another adapter shows or has announced need no notice. The announced messages are leased until
    /// [`finish`](Self::finish) is called, or until the notice is dropped, which means that it was not typed.
    pub async fn next_notice(&mut self) -> Result<Option<Notice>, WorkspaceError> {
        let Some((mail, more)) = self.poll_mail().await? else { return Ok(None) };
        let oldest = mail.first().map(|mail| mail.stored.message.id);
        let hold = self.workspace.lease_unseen_of(&self.agent, &mail, DisplayMode::Push).await?;
        let announced: Vec<&MailboxMessage> =
            mail.iter().filter(|mail| hold.contains(mail.stored.message.id)).collect();
        if announced.is_empty() {
            self.outstanding = oldest;
            return Ok(None);
        }
        let senders: Vec<&AgentId> = announced.iter().map(|mail| &mail.stored.message.from).collect();
        let text = notice(&senders, more);
        let ids = announced.iter().map(|mail| mail.stored.message.id).collect();
        Ok(Some(Notice { text, hold, ids, oldest }))
    }

    /// Records that a notice was typed.
    pub async fn finish(&mut self, notice: Notice) -> Result<(), WorkspaceError> {
        let Notice { text, hold, ids, oldest } = notice;
        self.outstanding = oldest;
        self.workspace.finish_showing(hold, Vec::new(), ids).await?;
        let hub = self.workspace.hub();
        let (key, value) = (self.agent.to_string(), format!("{} {text}", iso(hub.now())));
        Ok(hub.notes(Door::Workspace).put(NOTICES, key, Some(value)).await?)
    }

    /// Returns the messages to announce, and whether there are more.
    async fn poll_mail(&mut self) -> Result<Option<(Vec<MailboxMessage>, bool)>, WorkspaceError> {
        let query = MailboxQuery {
            agent: self.agent.clone(),
            after: self.after,
            limit: MAX_COUNTED,
            part: Part::Unseen,
        };
        let page = self.workspace.hub().mailboxes().page(query).await?;
        let mut mail = page.items;
        mail.retain(|mail| mail.stored.message.kind.as_str() != EXECUTE);
        let oldest = mail.first().map(|mail| mail.stored.message.id);
        Ok((oldest.is_some() && self.outstanding != oldest).then_some((mail, page.more)))
    }
}

/// Builds one line with the number of messages and the names of their senders.
fn notice(senders: &[&AgentId], more: bool) -> String {
    let mut names: Vec<String> = Vec::new();
    for sender in senders.iter().map(ToString::to_string) {
        if !names.contains(&sender) {
            names.push(sender);
        }
    }
    let others = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    if others > 0 || more {
        names.push("others".to_owned());
    }
    let from = match &names[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    };
    let (plus, plural) = (if more { "+" } else { "" }, if senders.len() == 1 { "" } else { "s" });
    format!("[switchboard] {}{plus} new message{plural} from {from}: run check_inbox", senders.len())
}

#[cfg(test)]
#[path = "notices_tests.rs"]
mod tests;
