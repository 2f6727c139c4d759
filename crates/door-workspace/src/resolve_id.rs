//! Which message somebody means by what a protocol calls it.
//!
//! Ids of other programs are theirs: the same one can lie in two mailboxes. What an agent says is meant in its own.

use switchboard_core::{AgentId, Door, MessageId};
use switchboard_hub::{HubError, is_idempotency_scope};

use crate::error::WorkspaceError;
use crate::ids;
use crate::workspace::Workspace;

impl Workspace {
    /// The message that a person means by `text`: our id, or what a protocol calls it; the newest of several.
    pub async fn resolve_id(&self, text: &str) -> Result<MessageId, WorkspaceError> {
        if let Some(id) = self.find_by_id(text).await? {
            return Ok(id);
        }
        let named = self.find_by_native(text).await?;
        named.first().copied().ok_or_else(|| HubError::UnknownMessage { id: text.to_owned() }.into())
    }

    /// The message that an agent means by `text`: first of all the one in its own mailbox, then one that it sent or got
    /// some other way.
    pub async fn resolve_id_for(&self, agent: &AgentId, text: &str) -> Result<MessageId, WorkspaceError> {
        if let Some(id) = self.find_by_id(text).await? {
            return Ok(id);
        }
        let agent = self.hub().directory().await?.canonical(agent);
        let in_mailboxes = self.hub().find_by_native(Some(Door::Workspace), text).await?;
        let own = in_mailboxes.iter().find(|(scope, _)| scope.eq_ignore_ascii_case(agent.name.as_str()));
        if let Some((_, id)) = own.filter(|_| agent.realm.is_none()) {
            return Ok(*id);
        }
        let named = self.find_by_native(text).await?;
        for id in &named {
            if let Some((stored, receipt)) = self.hub().receipt(*id).await?
                && (stored.message.from == agent || receipt.deliveries.iter().any(|one| one.agent == agent))
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
        Ok(self.hub().message(id).await?.map(|_| id))
    }

    /// The messages that a protocol calls so, newest first. A sender's own word for a message is no name of it: it
    /// would stand for whatever the sender likes.
    async fn find_by_native(&self, text: &str) -> Result<Vec<MessageId>, WorkspaceError> {
        let named = self.hub().find_by_native(None, text).await?;
        Ok(named.into_iter().filter(|(scope, _)| !is_idempotency_scope(scope)).map(|(_, id)| id).collect())
    }
}

#[cfg(test)]
#[path = "resolve_id_tests.rs"]
mod tests;
