//! How much mail waits unseen: what rides on every tool result.

use switchboard_core::AgentId;
use switchboard_hub::{Hub, Part};

use crate::snapshot::{COUNTED, MailboxView};

/// How many messages an agent has not seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unread(usize);

impl Unread {
    /// Counts. A journal that cannot be read just now must not spoil the answer to something else.
    pub(super) async fn of(hub: &Hub, agent: Option<&AgentId>) -> Self {
        let Some(agent) = agent else { return Self(0) };
        Self(hub.count(agent.clone(), Part::Unseen, COUNTED).await.unwrap_or_default())
    }

    /// The count of a moment.
    pub(super) fn as_of(mailbox: &MailboxView) -> Self {
        Self(mailbox.unseen)
    }

    pub(super) fn count(self) -> usize {
        self.0
    }

    /// One line for the model; none where there is nothing.
    pub(super) fn line(self) -> Option<String> {
        match self.0 {
            0 => None,
            1 => Some("You have 1 unread message: call check_inbox.".to_owned()),
            COUNTED => Some(format!("You have {COUNTED} or more unread messages: call check_inbox.")),
            n => Some(format!("You have {n} unread messages: call check_inbox.")),
        }
    }
}
