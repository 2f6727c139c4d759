//! What can be set about the workspace door.

use std::time::Duration;

use jiff::SignedDuration;

use crate::terminal::TerminalConfig;

/// The door's settings, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a file that does not parse must stand unchanged before it counts as malformed rather
    /// than as half written.
    pub settle: Duration,
    /// How often all mailboxes are looked at, whatever the file events say.
    pub rescan: Duration,
    /// The same on a network mount, where events of other machines do not arrive.
    pub rescan_network: Duration,
    /// Largest message file that is read. A body of 1 MiB can take six times that as JSON.
    pub file_limit: u64,
    /// How long what is done with is kept.
    pub retention: Retention,
    /// What may be typed into terminals.
    pub terminals: TerminalConfig,
}

/// How long what is done with is kept; for ever where it says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Files under `archive/`.
    pub archive: Option<SignedDuration>,
    /// Files under `outbox/`.
    pub receipts: Option<SignedDuration>,
    /// Messages in the journal that every recipient is done with.
    pub journal: Option<SignedDuration>,
}

impl Retention {
    /// Keeps everything.
    pub const FOR_EVER: Self = Self { archive: None, receipts: None, journal: None };
}

impl Default for Retention {
    /// A month of files, which people may look for by hand, and three months of a journal that can be searched.
    fn default() -> Self {
        let days = |days: i64| Some(SignedDuration::from_hours(24 * days));
        Self { archive: days(30), receipts: days(30), journal: days(90) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(1),
            rescan: Duration::from_secs(15),
            rescan_network: Duration::from_secs(2),
            file_limit: 8 << 20,
            retention: Retention::default(),
            terminals: TerminalConfig::default(),
        }
    }
}
