//! Resolves message ids that people and agents write.
//!
//! Two programs may use the same id, so the id can exist in two mailboxes. For an agent, the id then refers to the
//! message in the agent's own mailbox.

use switchboard_core::{AgentId, Door, MessageId};
use switchboard_hub::{HubError, is_idempotency_scope};

use crate::error::WorkspaceError;
use crate::ids;
use crate::workspace::Workspace;

impl Workspace {
    /// Resolves an id that a person wrote: a message id or a protocol id.
    ///
    /// If a protocol id is ambiguous, the newest message is returned.
    pub async fn resolve_id(&self, text: &str) -> Result<MessageId, WorkspaceError> {
        if let Some(id) = self.find_by_id(text).await? {
            return Ok(id);
        }
        let named = self.find_by_native(text).await?;
        named.first().copied().ok_or_else(|| HubError::UnknownMessage { id: text.to_owned() }.into())
    }

    /// Resolves an id that an agent wrote.
    ///
    /// Prefers the message in the agent's own mailbox, then a message that the agent sent or received another way.
    pub async fn resolve_id_for(&self, agent: &AgentId, text: &str) -> Result<MessageId, WorkspaceError> {
        if let Some(id) = self.find_by_id(text).await? {
            return Ok(id);
        }
        let agent = self.hub().directory().await?.canonical(agent);
        let in_mailboxes = self.hub().native_ids().find(Some(Door::Workspace), text).await?;
        let own = in_mailboxes.iter().find(|(scope, _)| scope.eq_ignore_ascii_case(agent.name.as_str()));
        if let Some((_, id)) = own.filter(|_| agent.realm.is_none()) {
            return Ok(*id);
        }
        let named = self.find_by_native(text).await?;
        for id in &named {
            if let Some((stored, receipt)) = self.hub().journal().receipt(*id).await?
                && (stored.message.from == agent
                    || receipt.deliveries.iter().any(|delivery| delivery.agent == agent))
            {
                return Ok(*id);
            }
        }
        named.first().copied().ok_or_else(|| HubError::UnknownMessage { id: text.to_owned() }.into())
    }

    async fn find_by_id(&self, text: &str) -> Result<Option<MessageId>, WorkspaceError> {
        let Some(id) = text.parse::<MessageId>().ok().or_else(|| ids::from_native(text)) else {
            return Ok(None);
        };
        Ok(self.hub().journal().message(id).await?.map(|_| id))
    }

    /// Lists the messages with this protocol id, newest first.
    ///
    /// Does not match idempotency keys: the sender chooses its key, so the key could impersonate any message.
    async fn find_by_native(&self, text: &str) -> Result<Vec<MessageId>, WorkspaceError> {
        let named = self.hub().native_ids().find(None, text).await?;
        Ok(named.into_iter().filter(|(scope, _)| !is_idempotency_scope(scope)).map(|(_, id)| id).collect())
    }
}

#[cfg(test)]
#[path = "resolve_id_tests.rs"]
mod tests;
