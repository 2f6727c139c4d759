//! Settings of the channels door.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_sys::reaper::ReaperClient;

use crate::watch::WatcherConfig;

/// How changes of the shared folder are detected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detection {
    /// By file events if the file system reports every change, otherwise by polling.
    #[default]
    Automatic,
    /// By polling only, for mounts that look like a local disk but have unreliable events.
    Polling,
}

/// Resolved settings of the door.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder that contains `channels/`, `signals/` and `logs/`. It may be on a network mount.
    pub root: PathBuf,
    /// True if several users may share the folder: new files get the folder's permissions.
    pub shared: bool,
    /// How changes of the folder are detected.
    pub detection: Detection,
    /// Interval of full scans, independent of file events.
    pub rescan: Duration,
    /// Interval of full scans if events of other machines do not arrive. The protocol specifies two seconds.
    pub rescan_network: Duration,
    /// Maximum size of a message file that is read. A body of 1 MiB can take six times that as JSON.
    pub file_limit: u64,
    /// How long an unparsable file must stay unchanged before it counts as malformed rather than incomplete.
    pub settle: Duration,
    /// Age from which a message counts as history when first seen. History is journaled, but delivered to no agent.
    pub history: SignedDuration,
    /// Interval of a watcher's heartbeat.
    pub heartbeat: Duration,
    /// True if the hub is linked with others, which may share the folder.
    pub linked: bool,
    /// Client of the reaper that kills the watchers' programs if this process is killed.
    pub guard: Option<ReaperClient>,
    /// Configured watchers.
    pub watchers: Vec<WatcherConfig>,
}

impl Config {
    /// Creates the default settings with the channels below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            shared: false,
            detection: Detection::default(),
            rescan: Duration::from_secs(15),
            rescan_network: Duration::from_secs(2),
            file_limit: 8 << 20,
            settle: Duration::from_secs(1),
            history: SignedDuration::from_hours(24),
            heartbeat: Duration::from_secs(10),
            linked: false,
            guard: None,
            watchers: Vec::new(),
        }
    }
}
