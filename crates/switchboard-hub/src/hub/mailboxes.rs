//! Access to mailboxes: their pages, counts and files, and what their readers have seen.

use rusqlite::Connection;
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId};

use super::Hub;
use crate::delivery::outbox;
use crate::directory;
use crate::error::HubError;
use crate::journal::maintenance;
use crate::journal::reads::{self, ExpectedFile, MailboxMessage, MailboxQuery, Page, Part};

/// Access to mailboxes: reads them and records what their readers have seen.
#[derive(Clone, Copy)]
pub struct Mailboxes<'h> {
    pub(super) hub: &'h Hub,
}

impl Mailboxes<'_> {
    /// Returns a page of an agent's mailbox.
    pub async fn page(self, query: MailboxQuery) -> Result<Page<MailboxMessage>, HubError> {
        let now = self.hub.now();
        self.hub
            .read(move |db| {
                let agent = directory::canonical(db, &query.agent)?;
                reads::mailbox(db, &MailboxQuery { agent, ..query }, now)
            })
            .await
    }

    /// Counts the messages that wait for an agent, up to `most`.
    pub async fn unread(self, agent: AgentId, most: usize) -> Result<usize, HubError> {
        self.count(agent, Part::Waiting, most).await
    }

    /// Counts the messages in a part of an agent's mailbox, up to `most`.
    pub async fn count(self, agent: AgentId, part: Part, most: usize) -> Result<usize, HubError> {
        /// Limit above which counting takes too long to run inline.
        const FEW: usize = 100;
        let now = self.hub.now();
        let count =
            move |db: &Connection| reads::count(db, &directory::canonical(db, &agent)?, part, most, now);
        if most <= FEW
            && let Some(count) = self.hub.try_read(&count)
        {
            return Ok(count);
        }
        self.hub.read(count).await
    }

    /// Returns the journal number of the newest message that waits for an agent.
    pub async fn newest_waiting(self, agent: AgentId) -> Result<Option<i64>, HubError> {
        self.hub.read(move |db| reads::newest_waiting(db, &directory::canonical(db, &agent)?)).await
    }

    /// Lists the messages that must have a file in an agent's mailbox folder.
    pub async fn expected_files(self, agent: AgentId) -> Result<Vec<ExpectedFile>, HubError> {
        Ok(self
            .expected_files_after(agent, 0, usize::MAX)
            .await?
            .into_iter()
            .map(|(_, waiting)| waiting)
            .collect())
    }

    /// Lists messages after a journal number that must have a file in an agent's mailbox folder.
    ///
    /// Returns at most `most` messages, in order, each with its number.
    pub async fn expected_files_after(
        self,
        agent: AgentId,
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, ExpectedFile)>, HubError> {
        self.hub
            .read(move |db| reads::expected_files_after(db, &directory::canonical(db, &agent)?, after, most))
            .await
    }

    /// Lists messages in transit to an agent's mailbox folder, whose files may already exist.
    pub async fn pending_files(self, agent: AgentId) -> Result<Vec<ExpectedFile>, HubError> {
        self.hub.read(move |db| reads::pending_files(db, &directory::canonical(db, &agent)?)).await
    }

    /// Marks messages as seen by an agent; returns the deliveries that changed.
    pub async fn mark_seen(self, agent: AgentId, ids: Vec<MessageId>) -> Result<Vec<Delivery>, HubError> {
        self.mark_seen_if(agent, ids, || true).await
    }

    /// Marks messages as seen like [`mark_seen`](Self::mark_seen), if the reader is still connected.
    ///
    /// Nothing changes if the reader has disconnected by the time of the transaction.
    pub async fn mark_seen_if(
        self,
        agent: AgentId,
        ids: Vec<MessageId>,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<Vec<Delivery>, HubError> {
        self.hub.note_changed_mail();
        self.hub
            .write(move |tx| {
                if !is_there() {
                    return Ok(Vec::new());
                }
                let agent = tx.directory.value.canonical(&agent);
                maintenance::advance_deliveries(tx, &agent, &ids, DeliveryState::Seen, None)
            })
            .await
    }

    /// Acknowledges a message for an agent, or returns `None` if it was already acknowledged.
    pub async fn acknowledge(
        self,
        agent: AgentId,
        id: MessageId,
        note: Option<String>,
    ) -> Result<Option<Delivery>, HubError> {
        self.hub.note_changed_mail();
        self.hub
            .write(move |tx| {
                let agent = tx.directory.value.canonical(&agent);
                let delivery = maintenance::delivery_to(tx.db, id, &agent)?;
                if delivery.is_none() {
                    return Err(HubError::NotTheRecipient { id, agent });
                }
                Ok(maintenance::advance_deliveries(tx, &agent, &[id], DeliveryState::Acknowledged, note)?
                    .pop())
            })
            .await
    }

    /// Supersedes earlier waiting messages of the same kind, sender and recipient as `newer`.
    ///
    /// Returns the deliveries that were superseded.
    pub async fn supersede(self, newer: MessageId) -> Result<Vec<Delivery>, HubError> {
        self.hub.write(move |tx| maintenance::supersede(tx, newer)).await
    }

    /// Lists at most `most` expired mailbox deliveries whose files are not archived yet.
    pub async fn expired_unarchived(self, most: usize) -> Result<Vec<(AgentId, MessageId)>, HubError> {
        self.hub.read(move |db| outbox::expired_unarchived(db, most)).await
    }

    /// Records that the file of an expired delivery is archived.
    pub async fn mark_archived(self, agent: &AgentId, id: MessageId) -> Result<(), HubError> {
        let key = outbox::unarchived_key(agent, id);
        self.hub.notes(Door::Workspace).put(outbox::UNARCHIVED, key, None).await
    }
}
