//! How one process tells the others that the journal has changed.
//!
//! Every commit writes a few bytes to the file `hub.bell`. Watching the database files instead would
//! wake the reader at the write and not at the commit, one fsync too early.
//!
//! The file has places side by side, and each process writes to one of them: whoever hears the file change sees whether it
//! was somebody else. Under load a process would otherwise wake itself a second time for each of its own commits.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use tokio::sync::watch;

use switchboard_sys::files::{Dir, FileError};

/// The file that is written to.
pub(crate) const NAME: &str = "hub.bell";

/// How many places the file has. Two processes that happen to share one hear each other too often, because each knows
/// what it has written itself; where one writes over the other's ring at once, the next look by the clock finds what was left.
const PLACES: usize = 64;

/// The bytes of a place.
const WIDTH: usize = size_of::<u64>();

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
    folder: Dir,
    /// Opened when it is first needed where the disk did not allow it before.
    file: OnceLock<File>,
    /// Which place is ours.
    place: usize,
    /// What is written there next, and what was written first. It begins anywhere, so that nobody else's number is taken
    /// for ours.
    next: AtomicU64,
    first: u64,
    /// Counts all rings, and those of others.
    heard: watch::Sender<u64>,
    others: watch::Sender<u64>,
}

/// What stood in the file.
type Marks = [u8; PLACES * WIDTH];

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
        let file = OnceLock::new();
        match folder.open_own(NAME) {
            Ok(opened) => drop(file.set(opened)),
            // Everybody also looks by the clock.
            Err(error) if error.is_disk() => {}
            Err(error) => return Err(error),
        }
        let path = folder.path().join(NAME);
        let first = fastrand::u64(..);
        let inner = Inner {
            path,
            folder: folder.clone(),
            file,
            place: fastrand::usize(..PLACES),
            next: AtomicU64::new(first),
            first,
            heard: watch::channel(0).0,
            others: watch::channel(0).0,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Tells everybody. A bell that cannot be written is no failure: listeners also look by themselves.
    pub(crate) fn ring(&self) {
        let ring = self.0.next.fetch_add(1, Ordering::Relaxed);
        if let Some(file) = self.0.file() {
            let _ = file.write_at(&ring.to_le_bytes(), (self.0.place * WIDTH) as u64);
        }
        count(&self.0.heard);
    }

    /// Changes whenever the journal may have changed.
    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.0.heard.subscribe()
    }

    /// Changes whenever another process may have changed it.
    pub(crate) fn listen_to_others(&self) -> watch::Receiver<u64> {
        self.0.others.subscribe()
    }

    /// Starts to hear the rings of other processes.
    pub(crate) fn hear_others(&self) -> Ear {
        let (bell, mut known) = (self.clone(), None);
        let hear = move |event: notify::Result<notify::Event>| {
            // Reading the file would be an event too, so only changes count.
            if !event.is_ok_and(|event| event.kind.is_modify() || event.need_rescan()) {
                return;
            }
            let marks = bell.marks_of_others();
            if marks.is_none() || marks != known {
                known = marks;
                count(&bell.0.others);
                count(&bell.0.heard);
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

    /// What others have written; nothing where that cannot be read.
    fn marks_of_others(&self) -> Option<Marks> {
        let inner = &self.0;
        let mut marks: Marks = [0; PLACES * WIDTH];
        // A file that nobody has rung at its last place is shorter.
        let _ = inner.file()?.read_at(&mut marks, 0).ok()?;
        let (places, _) = marks.as_chunks_mut::<WIDTH>();
        let own = places.get_mut(inner.place)?;
        let count = u64::from_le_bytes(*own).wrapping_sub(inner.first);
        if count < inner.next.load(Ordering::Relaxed).wrapping_sub(inner.first) {
            *own = [0; WIDTH];
        }
        Some(marks)
    }
}

impl Inner {
    fn file(&self) -> Option<&File> {
        if self.file.get().is_none() {
            let _ = self.file.set(self.folder.open_own(NAME).ok()?);
        }
        self.file.get()
    }
}

fn count(rings: &watch::Sender<u64>) {
    rings.send_modify(|rings| *rings = rings.wrapping_add(1));
}

#[cfg(test)]
#[path = "bell_tests.rs"]
mod tests;
