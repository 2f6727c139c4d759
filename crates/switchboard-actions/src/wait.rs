//! The action that waits for mail.

use door_workspace::Workspace;
use switchboard_core::AgentId;
use switchboard_hub::{DisplayLease, DisplayMode, MailboxMessage, MailboxQuery, Part};

use crate::error::ActionError;

/// Maximum number of messages per arrival. Further messages come with the next wait.
const MAX_MESSAGES: usize = 20;

/// Request to wait for messages in a mailbox.
#[derive(Debug, Clone)]
pub struct Wait {
    /// Owner of the mailbox.
    pub owner: AgentId,
    /// Journal position after which a message counts as new.
    pub after: i64,
    /// True if the owner itself waits. A wait by another reader changes nothing.
    pub is_own: bool,
}

/// Messages that arrived.
pub struct Arrival {
    /// The messages, oldest first.
    pub messages: Vec<MailboxMessage>,
    /// Display lease on the messages, if the owner waited.
    pub lease: Option<DisplayLease>,
}

/// Waits until the mailbox has unseen messages.
///
/// The owner gets a display lease on the messages, so that no other adapter shows them. Before the first check and
/// after each change of the journal, `tick` is called, for a heartbeat.
pub async fn wait(
    workspace: &Workspace,
    request: Wait,
    mut tick: impl AsyncFnMut(),
) -> Result<Arrival, ActionError> {
    let Wait { owner, after, is_own } = request;
    let hub = workspace.hub();
    let mut changes = hub.changes();
    loop {
        tick().await;
        if is_own {
            let (messages, lease) =
                workspace.lease_unseen(&owner, after, MAX_MESSAGES, DisplayMode::Pull).await?;
            if !messages.is_empty() {
                return Ok(Arrival { messages, lease: Some(lease) });
            }
        } else {
            let query = MailboxQuery { agent: owner.clone(), after, limit: MAX_MESSAGES, part: Part::Unseen };
            let messages = hub.mailboxes().page(query).await?.items;
            if !messages.is_empty() {
                return Ok(Arrival { messages, lease: None });
            }
        }
        changes.next().await;
    }
}
