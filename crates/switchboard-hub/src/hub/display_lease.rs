//! Display leases: only one adapter displays a message to its reader, and only once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_core::{AgentId, Delivery, MessageId};
use switchboard_sys::process_identity::ProcessIdentity;

use super::{Hub, Mailboxes};
use crate::delivery::display_lease::{self, DisplayMode};
use crate::error::HubError;
use crate::store::writer::Transaction;

/// Next number that distinguishes the display leases of one process.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(0);

/// Lease on messages that an adapter is about to display.
///
/// The lease ends when it is dropped, when its process ends, or when it expires.
#[doc(alias = "visibility timeout")]
pub struct DisplayLease {
    hub: Hub,
    agent: AgentId,
    token: String,
    ids: Vec<MessageId>,
}

impl Mailboxes<'_> {
    /// Leases the messages that the agent has not seen and that no other adapter has leased.
    pub async fn lease_display(
        self,
        agent: AgentId,
        ids: Vec<MessageId>,
        mode: DisplayMode,
    ) -> Result<DisplayLease, HubError> {
        self.lease_display_for(agent, ids, mode, self.hub.inner.config.lease).await
    }

    /// Leases messages for display, for a given duration.
    pub async fn lease_display_for(
        self,
        agent: AgentId,
        ids: Vec<MessageId>,
        mode: DisplayMode,
        lease: Duration,
    ) -> Result<DisplayLease, HubError> {
        let number = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        let token = format!("{} {number}", ProcessIdentity::this_process());
        let agent = self.hub.directory().await?.canonical(&agent);
        // From here on, dropping the future releases the lease, because the writer may already have granted it.
        let mut hold = DisplayLease {
            hub: self.hub.clone(),
            agent: agent.clone(),
            token: token.clone(),
            ids: ids.clone(),
        };
        if ids.is_empty() {
            return Ok(hold);
        }
        let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX);
        // The lease need not be durable: a power failure may lose it, but ends its holder as well.
        let leasing = self
            .hub
            .inner
            .writer
            .queue_repeatable(move |tx| display_lease::acquire(tx, &agent, &ids, mode, &token, lease));
        let answer = leasing.await?.result().await;
        self.hub.note_damage(&answer);
        match answer {
            // The lease cannot be written, but the reader must get the messages anyway.
            Err(error) if error.is_disk() => {}
            answer => hold.ids = answer?,
        }
        Ok(hold)
    }
}

impl DisplayLease {
    /// Returns true if the lease covers a message.
    pub fn contains(&self, id: MessageId) -> bool {
        self.ids.contains(&id)
    }

    /// Returns true if the lease covers no message.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Ends the lease: marks displayed messages as seen and others as announced, and releases the rest.
    ///
    /// Returns the deliveries that became seen.
    pub async fn finish(
        self,
        shown: Vec<MessageId>,
        announced: Vec<MessageId>,
    ) -> Result<Vec<Delivery>, HubError> {
        self.finish_if(shown, announced, || true).await
    }

    /// Ends the lease like [`finish`](Self::finish), if the reader is still connected.
    ///
    /// If the reader has disconnected by the time of the transaction, releases all messages. The process may have been
    /// suspended between its last check of the reader and the transaction.
    pub async fn finish_if(
        mut self,
        mut shown: Vec<MessageId>,
        mut announced: Vec<MessageId>,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<Vec<Delivery>, HubError> {
        let (agent, held, token) = (self.agent.clone(), self.ids.clone(), self.token.clone());
        let finish = move |tx: &mut Transaction<'_>| {
            if !is_there() {
                shown.clear();
                announced.clear();
            }
            display_lease::release(tx, &agent, &held, &shown, &announced, &token)
        };
        let finished = self.hub.write(finish).await;
        self.ids.clear();
        finished
    }
}

impl Drop for DisplayLease {
    fn drop(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let (agent, held, token) =
            (self.agent.clone(), std::mem::take(&mut self.ids), std::mem::take(&mut self.token));
        self.hub
            .inner
            .writer
            .post(move |tx| display_lease::release(tx, &agent, &held, &[], &[], &token).map(|_| ()));
    }
}
