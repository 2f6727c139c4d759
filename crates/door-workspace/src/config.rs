//! Settings of the workspace door.

use std::time::Duration;

use jiff::SignedDuration;

use crate::terminal::TerminalConfig;

/// Resolved settings of the workspace door.
#[derive(Debug, Clone)]
pub struct Config {
    /// Settle time of a file that does not parse.
    ///
    /// A file that stays unchanged for this long counts as malformed rather than as half written.
    pub settle: Duration,
    /// Poll interval for scanning the mailboxes when no file event arrives.
    pub rescan: Duration,
    /// Poll interval on a network mount, where the watcher does not see changes by other machines.
    pub rescan_network: Duration,
    /// Maximum size of a message file in bytes; larger files are not read.
    ///
    /// A body of 1 MiB can take six times as many bytes as JSON.
    pub file_limit: u64,
    /// Retention of archived files, receipts and journal entries.
    pub retention: Retention,
    /// Permissions for typing into terminals.
    pub terminals: TerminalConfig,
}

/// Retention times; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Retention of files under `archive/`.
    pub archive: Option<SignedDuration>,
    /// Retention of files under `outbox/`.
    pub receipts: Option<SignedDuration>,
    /// Retention of journal messages whose deliveries have all ended.
    pub journal: Option<SignedDuration>,
}

impl Retention {
    /// Retains everything.
    pub const FOR_EVER: Self = Self { archive: None, receipts: None, journal: None };
}

impl Default for Retention {
    /// Returns the default retention times.
    ///
    /// Files are retained for 30 days, because people may look them up by hand, and the searchable journal for 90 days.
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
