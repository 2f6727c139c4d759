//! Events of the hub, for subscribers.

use std::sync::{Arc, OnceLock};

use switchboard_core::{AgentId, Delivery, MessageId, Presence};
use tokio::sync::broadcast;

/// Events that a slow subscriber may lag behind. Beyond that, the oldest are dropped for this subscriber alone;
/// it gets [`broadcast::error::RecvError::Lagged`] and reads the journal instead.
const BUFFER: usize = 4096;

/// Event of the hub. A closed set: dashboard, `tail` and the link to other hubs all see the same events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubEvent {
    /// A process, this one or another, has accepted a message.
    Accepted {
        /// Its number in the journal.
        seq: i64,
        /// The message.
        id: MessageId,
    },
    /// A delivery changed its state in this process.
    Delivery(Box<Delivery>),
    /// An agent, alias, route or team was added, changed or removed in this process.
    Directory,
    /// This process received a heartbeat of an agent.
    Presence(Box<Presence>),
    /// A breaker stopped a message.
    Stopped {
        /// The stopped message.
        id: MessageId,
        /// Its sender.
        from: AgentId,
        /// Reason for the stop.
        reason: String,
    },
}

/// Channel that publishes events to subscribers. Its buffer, 450 kB, is allocated for the first subscriber:
/// most processes never have one.
#[derive(Debug, Clone)]
pub(crate) struct Events(Arc<OnceLock<broadcast::Sender<HubEvent>>>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn send(&self, event: HubEvent) {
        // Sending fails only without subscribers.
        if let Some(events) = self.0.get() {
            let _ = events.send(event);
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<HubEvent> {
        self.0.get_or_init(|| broadcast::channel(BUFFER).0).subscribe()
    }
}
