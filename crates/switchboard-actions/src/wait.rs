//! Waits for mail.

use door_workspace::Workspace;
use switchboard_core::AgentId;
use switchboard_hub::{DisplayLease, DisplayMode, MailboxMessage, MailboxQuery, Part};

use crate::error::ActionError;

/// Most messages per arrival; the others come with the next wait.
const MAX_MESSAGES: usize = 20;

/// The mailbox to wait for.
#[derive(Debug, Clone)]
pub struct Wait {
    /// Its owner.
    pub owner: AgentId,
    /// The journal position after which a message counts.
    pub after: i64,
    /// True if the owner itself waits; another reader changes nothing.
    pub is_own: bool,
}

/// Messages that arrived.
pub struct Arrival {
    /// The messages, oldest first.
    pub messages: Vec<MailboxMessage>,
    /// The right to show them, if the owner waited.
    pub lease: Option<DisplayLease>,
}

/// Waits until the mailbox has unseen messages. The owner gets the right to show them, so that no other adapter does.
///
/// Each change of the journal calls `tick` first, for a heartbeat.
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
