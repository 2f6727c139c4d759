//! Notices of new mail, for a terminal whose owner wants them.

use switchboard_core::{AgentId, Door, MessageId};
use switchboard_hub::{Changes, DisplayLease, DisplayMode, MailboxMessage, MailboxQuery, Part};

use super::executor::TerminalExecutor;
use super::permission::EXECUTE;
use crate::error::WorkspaceError;
use crate::translate::iso;
use crate::workspace::Workspace;

/// Under this topic the hub remembers the last notice typed for each agent: it is no message, so it is
/// not in the journal, and one per agent is enough to answer "who typed that?".
const NOTICES: &str = "terminal notices";

/// How many messages are counted, and how many senders named.
const MOST: usize = 100;
const NAMED: usize = 3;

/// What there is to tell an agent about its mail. At most one notice is out at a time: there is no other
/// until the agent has read the oldest message that the last one told of.
pub struct Notices {
    workspace: Workspace,
    agent: AgentId,
    after: i64,
    changes: Changes,
    outstanding: Option<MessageId>,
}

/// A notice that is about to be typed.
pub struct Notice {
    /// The line.
    pub text: String,
    hold: DisplayLease,
    ids: Vec<MessageId>,
    oldest: Option<MessageId>,
}

impl Notices {
    /// Notices of what is accepted after `executor` was taken.
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

    /// Waits until there is mail to tell of. Can be cancelled and called again.
    pub async fn wait(&mut self) -> Result<(), WorkspaceError> {
        while self.poll_mail().await?.is_none() {
            self.changes.next().await;
        }
        Ok(())
    }

    /// The notice to type now, if there still is one. What another adapter shows to the agent or has told it of
    /// needs none. Its messages are held until [`finish`](Self::finish), or until it is dropped: then it was not typed.
    pub async fn next_notice(&mut self) -> Result<Option<Notice>, WorkspaceError> {
        let Some((mail, more)) = self.poll_mail().await? else { return Ok(None) };
        let oldest = mail.first().map(|mail| mail.stored.message.id);
        let hold = self.workspace.lease_unseen_of(&self.agent, &mail, DisplayMode::Push).await?;
        let told: Vec<&MailboxMessage> =
            mail.iter().filter(|mail| hold.contains(mail.stored.message.id)).collect();
        if told.is_empty() {
            self.outstanding = oldest;
            return Ok(None);
        }
        let senders: Vec<&AgentId> = told.iter().map(|mail| &mail.stored.message.from).collect();
        let text = notice(&senders, more);
        let ids = told.iter().map(|mail| mail.stored.message.id).collect();
        Ok(Some(Notice { text, hold, ids, oldest }))
    }

    /// Notes that a notice was typed.
    pub async fn finish(&mut self, notice: Notice) -> Result<(), WorkspaceError> {
        let Notice { text, hold, ids, oldest } = notice;
        self.outstanding = oldest;
        self.workspace.finish_showing(hold, Vec::new(), ids).await?;
        let hub = self.workspace.hub();
        let (key, value) = (self.agent.to_string(), format!("{} {text}", iso(hub.now())));
        Ok(hub.put_note(Door::Workspace, NOTICES, key, Some(value)).await?)
    }

    /// The mail to tell of, and whether there is more of it.
    async fn poll_mail(&mut self) -> Result<Option<(Vec<MailboxMessage>, bool)>, WorkspaceError> {
        let query =
            MailboxQuery { agent: self.agent.clone(), after: self.after, limit: MOST, part: Part::Unseen };
        let page = self.workspace.hub().mailbox(query).await?;
        let mut mail = page.items;
        mail.retain(|mail| mail.stored.message.kind.as_str() != EXECUTE);
        let oldest = mail.first().map(|mail| mail.stored.message.id);
        Ok((oldest.is_some() && self.outstanding != oldest).then_some((mail, page.more)))
    }
}

/// One line that tells how many messages came from whom.
fn notice(senders: &[&AgentId], more: bool) -> String {
    let mut names: Vec<String> = Vec::new();
    for sender in senders.iter().map(ToString::to_string) {
        if !names.contains(&sender) {
            names.push(sender);
        }
    }
    let others = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
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
