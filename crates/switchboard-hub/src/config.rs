//! What can be set about the hub.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use switchboard_core::{Budgets, Links, LoopLimits, PresenceTimeouts, RetryPolicy};
use switchboard_sys::clock::Clock;

use crate::store::binding::HubKey;

/// The hub's settings, resolved.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The folder that holds `hub.db`.
    pub folder: PathBuf,
    /// Key that the database is bound with; without one, any database is taken.
    pub key: Option<HubKey>,
    /// Most bytes in a message's body.
    pub body_limit: usize,
    /// Most bytes in a message's metadata, as JSON.
    pub metadata_limit: usize,
    /// Where reply chains between agents are stopped.
    pub loops: LoopLimits,
    /// What agents may write and use.
    pub budgets: Budgets,
    /// How delivery attempts are spaced.
    pub retry: RetryPolicy,
    /// When a silent agent counts as stale and as offline.
    pub presence: PresenceTimeouts,
    /// How long a door has for one delivery before another process may take it over.
    pub lease: Duration,
    /// After how long a sender is told that nobody has looked at a message; `None`: never.
    pub unread_reminder_after: Option<Duration>,
    /// What a person has joined that would otherwise be apart.
    pub links: Arc<Links>,
    /// Where the time comes from.
    pub clock: Clock,
}

impl HubConfig {
    /// The defaults, with the database in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            key: None,
            body_limit: 1 << 20,
            metadata_limit: 256 << 10,
            loops: LoopLimits::default(),
            budgets: Budgets::default(),
            retry: RetryPolicy::default(),
            presence: PresenceTimeouts::default(),
            // A mailbox takes milliseconds and a slow peer has 30 s; a dead process is noticed at once anyway.
            lease: Duration::from_mins(1),
            unread_reminder_after: None,
            links: Arc::default(),
            clock: Clock::system(),
        }
    }
}
