//! Events that the hub publishes to subscribers.

use std::sync::{Arc, OnceLock};

use switchboard_core::{AgentId, Delivery, MessageId, Presence};
use tokio::sync::broadcast;

/// Maximum number of events by which a slow subscriber may lag.
///
/// Beyond that, the oldest events are dropped for this subscriber alone; it gets
/// [`broadcast::error::RecvError::Lagged`] and reads the journal instead.
const BUFFER: usize = 4096;

/// Event of the hub.
///
/// The set is closed: dashboard, `tail` and the link to other hubs all see the same events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubEvent {
    /// This or another process has accepted a message.
    Accepted {
        /// Number of the message in the journal.
        seq: i64,
        /// The message.
        id: MessageId,
    },
    /// A delivery changed its state in this process.
    Delivery(Box<Delivery>),
    /// An agent, alias, route or team was added, changed or removed in this process.
    Directory,
    /// This process received a heartbeat from an agent.
    Presence(Box<Presence>),
    /// A breaker stopped a message.
    Stopped {
        /// The stopped message.
        id: MessageId,
        /// Sender of the message.
        from: AgentId,
        /// Reason for the stop.
        reason: String,
    },
}

/// Broadcast channel that publishes events to subscribers.
///
/// Its buffer of 450 kB is allocated for the first subscriber, because most processes never have one.
#[derive(Debug, Clone)]
pub(crate) struct Events(Arc<OnceLock<broadcast::Sender<HubEvent>>>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn send(&self, event: HubEvent) {
        // Sending fails only if there is no subscriber, so the error is ignored.
        if let Some(events) = self.0.get() {
            let _ = events.send(event);
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<HubEvent> {
        self.0.get_or_init(|| broadcast::channel(BUFFER).0).subscribe()
    }
}
