//! Access to the relay: the hub's interface for the link to other hubs.

use jiff::Timestamp;
use switchboard_core::{Delivery, Name};

use super::Hub;
use crate::delivery::relay::{self, OutgoingBatch, RelayedPosts, RemoteReceipt};
use crate::delivery::remote_receipts::{self, PendingReceipt};
use crate::directory::{self, RemoteAgent};
use crate::error::HubError;

/// Access to the relay: exchanges messages, receipts and agents with linked hubs.
#[derive(Clone, Copy)]
pub struct Relay<'h> {
    pub(super) hub: &'h Hub,
}

impl Relay<'_> {
    /// Returns messages after a cursor that are for other hubs. Scans at most `limit` journal numbers.
    pub async fn outgoing(self, after: i64, limit: usize) -> Result<OutgoingBatch, HubError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.hub.read(move |db| relay::outgoing(db, after, limit)).await
    }

    /// Returns relayed messages after a cursor that were posted in a channel of their hub.
    ///
    /// Scans at most `limit` journal numbers.
    pub async fn posts(self, after: i64, limit: usize) -> Result<RelayedPosts, HubError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.hub.read(move |db| relay::relayed_posts(db, after, limit)).await
    }

    /// Returns this hub's name among the linked hubs, or `None` before the first link.
    pub async fn own_name(self) -> Result<Option<Name>, HubError> {
        self.hub.read(relay::own_name).await
    }

    /// Sets this hub's name among the linked hubs, for all its processes.
    pub async fn set_own_name(self, name: Name) -> Result<(), HubError> {
        self.hub.write(move |tx| relay::set_own_name(tx, &name)).await
    }

    /// Records how far the journal has been relayed, and marks these deliveries as in flight.
    ///
    /// Does not wait for the disk: after a power failure, the link determines the state again.
    pub async fn mark_relayed(
        self,
        key: &'static str,
        cursor: String,
        deliveries: Vec<Delivery>,
    ) -> Result<(), HubError> {
        let writer = &self.hub.inner.writer;
        let marking = writer.queue_repeatable(move |tx| relay::mark_relayed(tx, key, &cursor, deliveries));
        let answer = marking.await?.result().await;
        self.hub.note_damage(&answer);
        answer
    }

    /// Writes a cursor of a link, after all work that was submitted to the hub before.
    ///
    /// Does not wait for the disk. A power failure may lose the cursor, but the cursor never survives without the data
    /// that it covers.
    pub async fn put_cursor(self, key: &'static str, cursor: String) -> Result<(), HubError> {
        let writer = &self.hub.inner.writer;
        let marking = writer.queue_repeatable(move |tx| relay::put_cursor(tx, key, &cursor));
        let answer = marking.await?.result().await;
        self.hub.note_damage(&answer);
        answer
    }

    /// Applies receipts of other hubs for relayed messages; returns the deliveries that changed.
    pub async fn apply_receipts(self, receipts: Vec<RemoteReceipt>) -> Result<Vec<Delivery>, HubError> {
        self.hub.write(move |tx| relay::apply_receipts(tx, receipts)).await
    }

    /// Lists at most `limit` receipts that are still to be sent to other hubs.
    pub async fn pending_receipts(self, limit: usize) -> Result<Vec<PendingReceipt>, HubError> {
        self.hub.read(move |db| remote_receipts::pending(db, limit)).await
    }

    /// Deletes receipts that were sent.
    pub async fn clear_receipts(self, pending_receipts: Vec<PendingReceipt>) -> Result<(), HubError> {
        self.hub.write(move |tx| remote_receipts::clear(tx, &pending_receipts)).await
    }

    /// Expires deliveries to other hubs that have been queued since before a moment; returns them.
    pub async fn expire_remote_deliveries(
        self,
        before: Timestamp,
        reason: &'static str,
    ) -> Result<Vec<Delivery>, HubError> {
        /// Maximum number of deliveries per transaction, because a transaction blocks all other writers.
        const MOST: usize = 256;
        self.hub.write(move |tx| relay::expire_remote_deliveries(tx, before, reason, MOST)).await
    }

    /// Replaces the known agents of another hub; returns true if anything changed.
    pub async fn put_remote_agents(self, hub: Name, residents: Vec<RemoteAgent>) -> Result<bool, HubError> {
        self.put_remote_agents_of(vec![(hub, residents)]).await
    }

    /// Replaces the agents of many hubs in one transaction; returns true if anything changed.
    ///
    /// One transaction is used because each change of the directory makes every process reload it.
    pub async fn put_remote_agents_of(self, hubs: Vec<(Name, Vec<RemoteAgent>)>) -> Result<bool, HubError> {
        self.hub.write(move |tx| directory::put_remote_agents(tx, &hubs)).await
    }
}
