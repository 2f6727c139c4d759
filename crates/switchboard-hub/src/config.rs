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
    /// Key that the database has to be bound to; without a key, any database is accepted.
    pub key: Option<HubKey>,
    /// Maximum size of a message body, in bytes.
    pub body_limit: usize,
    /// Maximum size of a message's metadata, in bytes of JSON.
    pub metadata_limit: usize,
    /// Loop limits: limits on reply chains between agents.
    pub loops: LoopLimits,
    /// Message and token budgets of agents.
    pub budgets: Budgets,
    /// Backoff between delivery attempts.
    pub retry: RetryPolicy,
    /// Silence after which an agent counts as stale and as offline.
    pub presence: PresenceTimeouts,
    /// Lease on a delivery: time until another process may take the delivery over from a door.
    pub lease: Duration,
    /// Time after which a sender is reminded of an unread message.
    ///
    /// With `None`, no reminders are sent.
    pub unread_reminder_after: Option<Duration>,
    /// Aliases and forwards that the person has configured.
    pub links: Arc<RoutingRules>,
    /// Source of the current time.
    pub clock: Clock,
}

impl HubConfig {
    /// Creates the default settings, with the database in `folder`.
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
            // A mailbox write takes milliseconds and a slow peer has 30 s. The lease of a dead process is released at
            // once anyway.
            lease: Duration::from_mins(1),
            unread_reminder_after: None,
            links: Arc::default(),
            clock: Clock::system(),
        }
    }
}
