//! Showing mail to its reader: once, by one of those who can.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_core::{AgentId, Delivery, MessageId};
use switchboard_sys::owner::Owner;

use super::Hub;
use crate::error::HubError;
use crate::showing::{self, DisplayMode};
use crate::store::writer::Work;

/// Tells the holds of one process apart.
static HOLDS: AtomicU64 = AtomicU64::new(0);

/// Messages that somebody is about to show to their reader. Dropped, it lets them go again; so does the end of
/// the process, and the end of its time.
pub struct DisplayLease {
    hub: Hub,
    agent: AgentId,
    token: String,
    ids: Vec<MessageId>,
}

impl Hub {
    /// Holds those of these messages that an agent has not seen and that nobody else is about to show to it.
    pub async fn lease_display(
        &self,
        agent: AgentId,
        ids: Vec<MessageId>,
        how: DisplayMode,
    ) -> Result<DisplayLease, HubError> {
        self.lease_display_for(agent, ids, how, self.inner.config.lease).await
    }

    /// The same for somebody who takes longer.
    pub async fn lease_display_for(
        &self,
        agent: AgentId,
        ids: Vec<MessageId>,
        how: DisplayMode,
        lease: Duration,
    ) -> Result<DisplayLease, HubError> {
        let number = HOLDS.fetch_add(1, Ordering::Relaxed);
        let token = format!("{} {number}", Owner::this_process());
        let agent = self.directory().await?.canonical(&agent);
        // From here on a caller that is cancelled lets them go: the writer may hold them already.
        let mut hold =
            DisplayLease { hub: self.clone(), agent: agent.clone(), token: token.clone(), ids: ids.clone() };
        if ids.is_empty() {
            return Ok(hold);
        }
        let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX);
        // Forgotten in a power failure, nobody holds it, and nobody is there either.
        let holding =
            self.inner.writer.queue_repeatable(move |tx| showing::hold(tx, &agent, &ids, how, &token, lease));
        let answer = holding.await?.result().await;
        self.note_damage(&answer);
        match answer {
            // The lease cannot be written, and this reader must not go without its mail for that.
            Err(error) if error.is_disk() => {}
            answer => hold.ids = answer?,
        }
        Ok(hold)
    }
}

impl DisplayLease {
    /// Whether a message is held.
    pub fn contains(&self, id: MessageId) -> bool {
        self.ids.contains(&id)
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Notes what was shown in full, and what the reader was only told of; the others are let go. Returns what
    /// was shown for the first time.
    pub async fn finish(
        self,
        shown: Vec<MessageId>,
        told: Vec<MessageId>,
    ) -> Result<Vec<Delivery>, HubError> {
        self.finish_if(shown, told, || true).await
    }

    /// [`finish`](Self::finish), unless the reader is gone by the time of the transaction: then all messages are let go.
    ///
    /// The process may have been stopped between the last look at its reader and the transaction.
    pub async fn finish_if(
        mut self,
        mut shown: Vec<MessageId>,
        mut told: Vec<MessageId>,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<Vec<Delivery>, HubError> {
        let (agent, held, token) = (self.agent.clone(), self.ids.clone(), self.token.clone());
        let finish = move |tx: &mut Work<'_>| {
            if !is_there() {
                shown.clear();
                told.clear();
            }
            showing::finish(tx, &agent, &held, &shown, &told, &token)
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
            .post(move |tx| showing::finish(tx, &agent, &held, &[], &[], &token).map(|_| ()));
    }
}
