//! How one process tells the others that the journal has changed.
//!
//! Every commit writes a few bytes to the file `hub.bell`. Watching the database files instead would
//! wake the reader at the write and not at the commit, one fsync too early.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use tokio::sync::watch;

use crate::files::{Dir, FileError};

/// The file that is written to.
pub(crate) const NAME: &str = "hub.bell";

/// How often a listener looks on its own, where file events do not arrive (network mounts).
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The same where they do arrive, for what nobody has thought of: many waiters of one process each look.
pub(crate) const LOOK_SELDOM: Duration = Duration::from_secs(2);

/// Rings for all processes that have the hub open, this one included.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    rings: AtomicU64,
    heard: watch::Sender<u64>,
}

/// Keeps the watch on the bell's file; dropping it ends the watch.
pub(crate) struct Ear {
    watcher: Option<notify::RecommendedWatcher>,
}

impl Ear {
    /// Whether file events could be had.
    pub(crate) fn hears(&self) -> bool {
        self.watcher.is_some()
    }
}

impl Bell {
    pub(crate) fn open(folder: &Dir) -> Result<Self, FileError> {
        let file = folder.open_own(NAME)?;
        let path = folder.path().join(NAME);
        let inner = Inner { path, file, rings: AtomicU64::new(0), heard: watch::channel(0).0 };
        Ok(Self(Arc::new(inner)))
    }

    /// Tells everybody. A bell that cannot be written is no failure: listeners also look by themselves.
    pub(crate) fn ring(&self) {
        let ring = self.0.rings.fetch_add(1, Ordering::Relaxed);
        let _ = self.0.file.write_at(&ring.to_le_bytes(), 0);
        self.heard();
    }

    /// Changes whenever the journal may have changed.
    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.0.heard.subscribe()
    }

    /// Starts to hear the rings of other processes.
    pub(crate) fn hear_others(&self) -> Ear {
        let bell = self.clone();
        let hear = move |event: notify::Result<notify::Event>| {
            // Reading the file would be an event too, so only changes count.
            if event.is_ok_and(|event| event.kind.is_modify() || event.need_rescan()) {
                bell.heard();
            }
        };
        let watcher = notify::recommended_watcher(hear).and_then(|mut watcher| {
            watcher.watch(&self.0.path, RecursiveMode::NonRecursive).map(|()| watcher)
        });
        match watcher {
            Ok(watcher) => Ear { watcher: Some(watcher) },
            Err(error) => {
                tracing::debug!(error = %error, "no file events; looking every {LOOK_EVERY:?} instead");
                Ear { watcher: None }
            }
        }
    }

    pub(crate) fn heard(&self) {
        self.0.heard.send_modify(|rings| *rings = rings.wrapping_add(1));
    }
}
