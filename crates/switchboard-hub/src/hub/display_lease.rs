//! Display leases: a message is displayed to its reader once, by one adapter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_core::{AgentId, Delivery, MessageId};
use switchboard_sys::process_identity::ProcessIdentity;

use super::{Hub, Mailboxes};
use crate::delivery::display_lease::{self, DisplayMode};
use crate::error::HubError;
use crate::store::writer::Transaction;

/// Distinguishes the display leases of one process.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(0);

/// Lease on messages that an adapter is about to display. It ends when it is dropped, when its process ends,
/// and when it expires.
#[doc(alias = "visibility timeout")]
pub struct DisplayLease {
    hub: Hub,
    agent: AgentId,
    token: String,
    ids: Vec<MessageId>,
}

impl Mailboxes<'_> {
    /// Leases those of these messages that the agent has not seen and that no other adapter has leased.
    pub async fn lease_display(
        self,
        agent: AgentId,
        ids: Vec<MessageId>,
        mode: DisplayMode,
    ) -> Result<DisplayLease, HubError> {
        self.lease_display_for(agent, ids, mode, self.hub.inner.config.lease).await
    }

    /// Leases messages for a given time.
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
        // From here on, dropping the future releases the lease: the writer may have granted it already.
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
        // A power failure may take the lease, and ends its holder as well.
        let leasing = self
            .hub
            .inner
            .writer
            .queue_repeatable(move |tx| display_lease::acquire(tx, &agent, &ids, mode, &token, lease));
        let answer = leasing.await?.result().await;
        self.hub.note_damage(&answer);
        match answer {
            // The lease cannot be written, but the reader must get its mail all the same.
            Err(error) if error.is_disk() => {}
            answer => hold.ids = answer?,
        }
        Ok(hold)
    }
}

impl DisplayLease {
    /// True if the lease covers a message.
    pub fn contains(&self, id: MessageId) -> bool {
        self.ids.contains(&id)
    }

    /// True if the lease covers no message.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Marks messages that were displayed in full as seen, and others as announced; releases the rest. Returns
    /// the deliveries that became seen.
    pub async fn finish(
        self,
        shown: Vec<MessageId>,
        announced: Vec<MessageId>,
    ) -> Result<Vec<Delivery>, HubError> {
        self.finish_if(shown, announced, || true).await
    }

    /// Like [`finish`](Self::finish), but releases all messages if the reader has disconnected by the time of
    /// the transaction.
    ///
    /// The process may have been stopped between its last check of the reader and the transaction.
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
