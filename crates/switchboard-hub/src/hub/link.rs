//! What a link to other hubs asks of this one.

use jiff::Timestamp;
use switchboard_core::{Delivery, Name};

use super::Hub;
use crate::directory::{self, RemoteAgent};
use crate::error::HubError;
use crate::link::{self, OutgoingBatch, RelayedPosts, RemoteReceipt};
use crate::owed::{self, PendingReceipt};

impl Hub {
    /// The messages after a cursor that concern other hubs. Looks at `limit` numbers of the journal at most.
    pub async fn outgoing(&self, after: i64, limit: usize) -> Result<OutgoingBatch, HubError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |db| link::outgoing(db, after, limit)).await
    }

    /// The messages after a cursor that a link brought and that were posted in a channel where they come from. Looks at
    /// `limit` numbers of the journal at most.
    pub async fn relayed_posts(&self, after: i64, limit: usize) -> Result<RelayedPosts, HubError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |db| link::relayed_posts(db, after, limit)).await
    }

    /// What this hub is called among those that it is linked with; nothing before it is.
    pub async fn own_name(&self) -> Result<Option<Name>, HubError> {
        self.read(link::own_name).await
    }

    /// Notes what this hub is called among the others, for all processes that have it open.
    pub async fn set_own_name(&self, name: Name) -> Result<(), HubError> {
        self.write(move |tx| link::set_own_name(tx, &name)).await
    }

    /// Notes how far the journal has been passed on, and that these deliveries are on their way.
    ///
    /// Does not wait for the disk: forgotten in a power failure, it is found out again.
    pub async fn mark_relayed(
        &self,
        key: &'static str,
        cursor: String,
        deliveries: Vec<Delivery>,
    ) -> Result<(), HubError> {
        let writer = &self.inner.writer;
        let noted = writer.queue_repeatable(move |tx| link::mark_relayed(tx, key, &cursor, deliveries));
        let answer = noted.await?.result().await;
        self.note_damage(&answer);
        answer
    }

    /// Writes a cursor of a link, after everything that was handed to the hub before.
    ///
    /// Does not wait for the disk: a power failure may take the cursor, and never leaves it without what it covers.
    pub async fn put_link_cursor(&self, key: &'static str, cursor: String) -> Result<(), HubError> {
        let writer = &self.inner.writer;
        let noted = writer.queue_repeatable(move |tx| link::put_cursor(tx, key, &cursor));
        let answer = noted.await?.result().await;
        self.note_damage(&answer);
        answer
    }

    /// Notes what other hubs said of messages that were passed on; returns the deliveries for which it is news.
    pub async fn apply_receipts(&self, verdicts: Vec<RemoteReceipt>) -> Result<Vec<Delivery>, HubError> {
        self.write(move |tx| link::apply_receipts(tx, verdicts)).await
    }

    /// What other hubs are still to be told of their messages, at most so much of it.
    pub async fn pending_receipts(&self, limit: usize) -> Result<Vec<PendingReceipt>, HubError> {
        self.read(move |db| owed::pending(db, limit)).await
    }

    /// Notes that this was told.
    pub async fn clear_receipts(&self, pending_receipts: Vec<PendingReceipt>) -> Result<(), HubError> {
        self.write(move |tx| owed::clear(tx, &pending_receipts)).await
    }

    /// Ends deliveries to other hubs that have waited since before a moment; returns those that it ended.
    pub async fn expire_remote_deliveries(
        &self,
        before: Timestamp,
        reason: &'static str,
    ) -> Result<Vec<Delivery>, HubError> {
        /// One transaction holds up everybody else.
        const MOST: usize = 256;
        self.write(move |tx| link::expire_remote_deliveries(tx, before, reason, MOST)).await
    }

    /// Makes these the known agents of another hub, and no others; says whether that changed anything.
    pub async fn put_remote_agents(&self, hub: Name, residents: Vec<RemoteAgent>) -> Result<bool, HubError> {
        self.put_remote_agents_of(vec![(hub, residents)]).await
    }

    /// The same for many hubs in one transaction: each change of the directory has it read again as a whole.
    pub async fn put_remote_agents_of(&self, hubs: Vec<(Name, Vec<RemoteAgent>)>) -> Result<bool, HubError> {
        self.write(move |tx| directory::put_remote_agents(tx, &hubs)).await
    }
}
