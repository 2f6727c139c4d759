//! What happens in the hub, for whoever wants to watch.

use std::sync::{Arc, OnceLock};

use switchboard_core::{AgentId, Delivery, MessageId, Presence};
use tokio::sync::broadcast;

/// How many events a slow subscriber may lag behind. Beyond that the oldest are dropped for it alone,
/// it is told so ([`broadcast::error::RecvError::Lagged`]), and reads the journal instead.
const BUFFER: usize = 4096;

/// Something happened. A closed set: dashboard, `tail` and the link to other hubs all see the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubEvent {
    /// A message is in the journal, by whichever process.
    Accepted {
        /// Its place in the journal.
        seq: i64,
        /// The message.
        id: MessageId,
    },
    /// A delivery changed its state in this process.
    Delivery(Box<Delivery>),
    /// An agent, alias, route or team was added, changed or removed in this process.
    Directory,
    /// An agent gave a sign of life to this process.
    Presence(Box<Presence>),
    /// A reply chain between agents was stopped.
    Stopped {
        /// The message that went no further.
        id: MessageId,
        /// Who wrote it.
        from: AgentId,
        /// Why.
        reason: String,
    },
}

/// Where events are sent and subscribed to. The places for them, 450 kB, are made for the first subscriber: most
/// processes never have one.
#[derive(Debug, Clone)]
pub(crate) struct Events(Arc<OnceLock<broadcast::Sender<HubEvent>>>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn send(&self, event: HubEvent) {
        // Nobody listening is no fault.
        if let Some(events) = self.0.get() {
            let _ = events.send(event);
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<HubEvent> {
        self.0.get_or_init(|| broadcast::channel(BUFFER).0).subscribe()
    }
}
