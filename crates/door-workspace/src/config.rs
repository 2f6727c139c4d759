//! Settings of the workspace door.

use std::time::Duration;

use jiff::SignedDuration;

use crate::terminal::TerminalConfig;

/// The door's settings, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Time that a file which does not parse must stay unchanged before it counts as malformed rather than as half
    /// written.
    pub settle: Duration,
    /// Interval of scanning all mailboxes without a file event.
    pub rescan: Duration,
    /// The same on a network mount, which reports no events of other machines.
    pub rescan_network: Duration,
    /// Largest message file that is read. A body of 1 MiB can take six times that as JSON.
    pub file_limit: u64,
    /// Retention of archived files, receipts and journal entries.
    pub retention: Retention,
    /// Permissions for typing into terminals.
    pub terminals: TerminalConfig,
}

/// Retention times; `None` retains without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Files under `archive/`.
    pub archive: Option<SignedDuration>,
    /// Files under `outbox/`.
    pub receipts: Option<SignedDuration>,
    /// Journal messages whose deliveries have all ended.
    pub journal: Option<SignedDuration>,
}

impl Retention {
    /// Retains everything.
    pub const FOR_EVER: Self = Self { archive: None, receipts: None, journal: None };
}

impl Default for Retention {
    /// A month of files, which people may look up by hand, and three months of a journal that can be searched.
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
