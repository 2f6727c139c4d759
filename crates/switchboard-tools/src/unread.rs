//! Count of unread messages, which every tool result reports.

use door_workspace::{COUNTED, MailboxView};
use switchboard_core::AgentId;
use switchboard_hub::{Hub, Part};

/// Number of messages that an agent has not seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unread(usize);

impl Unread {
    /// Counts an agent's unread messages.
    ///
    /// An unreadable journal counts as zero, so that it does not fail the result of the call.
    pub(super) async fn of(hub: &Hub, agent: Option<&AgentId>) -> Self {
        let Some(agent) = agent else { return Self(0) };
        Self(hub.mailboxes().count(agent.clone(), Part::Unseen, COUNTED).await.unwrap_or_default())
    }

    /// Returns the unread count from a mailbox view.
    pub(super) fn as_of(mailbox: &MailboxView) -> Self {
        Self(mailbox.unseen)
    }

    pub(super) fn count(self) -> usize {
        self.0
    }

    /// Formats the count as one line for the model; returns `None` for zero.
    pub(super) fn line(self) -> Option<String> {
        match self.0 {
            0 => None,
            1 => Some("You have 1 unread message: call check_inbox.".to_owned()),
            COUNTED => Some(format!("You have {COUNTED} or more unread messages: call check_inbox.")),
            n => Some(format!("You have {n} unread messages: call check_inbox.")),
        }
    }
}
