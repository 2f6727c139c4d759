//! Settings of the hub.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use switchboard_core::{Budgets, LoopLimits, PresenceTimeouts, RetryPolicy, RoutingRules};
use switchboard_sys::clock::Clock;

use crate::store::binding::HubKey;

/// Resolved settings of the hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The folder that holds `hub.db`.
    pub folder: PathBuf,
    /// Key that the database is bound with; without a key, any database is accepted.
    pub key: Option<HubKey>,
    /// Most bytes in a message's body.
    pub body_limit: usize,
    /// Most bytes in a message's metadata, as JSON.
    pub metadata_limit: usize,
    /// Limits on reply chains between agents.
    pub loops: LoopLimits,
    /// Budgets of agents: messages and tokens.
    pub budgets: Budgets,
    /// Backoff between delivery attempts.
    pub retry: RetryPolicy,
    /// When a silent agent counts as stale and as offline.
    pub presence: PresenceTimeouts,
    /// Lease on a delivery: how long a door has before another process may take the delivery over.
    pub lease: Duration,
    /// Time after which a sender is reminded that a message is unread; `None` sends no reminders.
    pub unread_reminder_after: Option<Duration>,
    /// Aliases and forwards that the person has set up.
    pub links: Arc<RoutingRules>,
    /// Source of the time.
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
            // A mailbox takes milliseconds and a slow peer has 30 s; the lease of a dead process is released at
            // once anyway.
            lease: Duration::from_mins(1),
            unread_reminder_after: None,
            links: Arc::default(),
            clock: Clock::system(),
        }
    }
}
