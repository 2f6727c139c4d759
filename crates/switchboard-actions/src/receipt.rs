//! The action that returns the delivery status of a message.

use door_workspace::ExecuteResult;
use switchboard_core::Receipt;
use switchboard_hub::{HubError, Stored};

use crate::actor::{Actor, may_read};
use crate::error::ActionError;

/// Delivery status of a message.
#[derive(Debug)]
pub struct ReceiptView {
    /// The message.
    pub stored: Stored,
    /// Receipt with the state of each delivery.
    pub receipt: Receipt,
    /// Result at the terminal, for a message whose text is typed there.
    pub terminal: Option<ExecuteResult>,
}

/// Returns the receipt of a message that the agent sent or received. The person may see every receipt.
pub async fn receipt(actor: Actor<'_>, id: &str) -> Result<ReceiptView, ActionError> {
    let workspace = actor.workspace;
    let hub = workspace.hub();
    let unknown = || HubError::UnknownMessage { id: id.to_owned() };
    let message = workspace.resolve_id_for(actor.agent, id).await?;
    let (mut stored, mut receipt) = hub.journal().receipt(message).await?.ok_or_else(unknown)?;
    let me = hub.directory().await?.canonical(actor.agent);
    if !may_read(&me, &stored, &receipt) {
        return Err(unknown().into());
    }
    // If the message has expired but no process has recorded that, it is recorded now.
    if stored.message.expires_at.is_some_and(|at| at <= hub.now())
        && receipt.deliveries.iter().any(|delivery| !delivery.state.is_final())
    {
        workspace.expire_messages().await?;
        (stored, receipt) = hub.journal().receipt(message).await?.ok_or_else(unknown)?;
    }
    let terminal = workspace.execute_result(&stored.message).await?;
    Ok(ReceiptView { stored, receipt, terminal })
}
