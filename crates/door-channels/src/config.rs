//! What can be set about the channels door.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_sys::guard::Guard;

use crate::watch::WatcherConfig;

/// How changes of the shared folder are noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detection {
    /// By file events where the file system reports every change, by looking where it does not.
    #[default]
    Automatic,
    /// By looking alone: for mounts that nobody can tell from a disk, and whose events mislead.
    Polling,
}

/// The door's settings, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder that holds `channels/`, `signals/` and `logs/`. It may be on a network mount.
    pub root: PathBuf,
    /// Whether that folder may be one of several users: what is made in it has the permissions of the folder then.
    pub shared: bool,
    /// How changes are noticed.
    pub detection: Detection,
    /// How often all channels are looked at, whatever the file events say.
    pub rescan: Duration,
    /// The same where events of other machines do not arrive: the protocol's two seconds.
    pub rescan_network: Duration,
    /// Largest message file that is read. A body of 1 MiB can take six times that as JSON.
    pub file_limit: u64,
    /// How long a file that does not parse must stand unchanged before it counts as malformed rather than
    /// as half written.
    pub settle: Duration,
    /// A message that is older when it is first seen is history: it is journaled, and delivered to nobody.
    pub history: SignedDuration,
    /// How often a watcher says that it is alive.
    pub heartbeat: Duration,
    /// Whether the hub is linked with others, which may share the folder as well.
    pub linked: bool,
    /// What ends the watchers' programs where this process is killed.
    pub guard: Option<Guard>,
    /// The watchers that run.
    pub watchers: Vec<WatcherConfig>,
}

impl Config {
    /// The defaults, with the channels below `root`.
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
