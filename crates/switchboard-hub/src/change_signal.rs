//! Change signal: tells other processes that the journal has changed.
//!
//! Every commit writes a few bytes to the file `hub.bell`. A watcher on the database files would instead wake the
//! reader at the write and not at the commit, one fsync too early.
//!
//! The file consists of slots, and each process writes to one slot. A watcher can therefore see whether another process
//! changed the file. Without slots, a process under load would wake itself a second time for each of its own commits.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use switchboard_sys::file_watcher::{ChangeKind, Depth, FileEvent, FileWatcher};
use switchboard_sys::files::{Dir, FileError};
use tokio::sync::watch;

/// Name of the signal file.
pub(crate) const NAME: &str = "hub.bell";

/// Number of slots in the file.
///
/// Two processes in the same slot get spurious wake-ups, because each process recognizes only its own writes. The
/// periodic poll covers a write that was overwritten at once.
const SLOTS: usize = 64;

/// Size of a slot in bytes.
const SLOT_BYTES: usize = size_of::<u64>();

/// Poll interval where file events do not arrive, such as on network mounts.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Poll interval where file events arrive; the poll is only a safety net.
///
/// The interval is long because each of the many waiters in a process polls.
pub(crate) const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Signal that notifies all processes that have the hub open, including this one.
#[derive(Debug, Clone)]
pub(crate) struct ChangeSignal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    folder: Dir,
    /// Signal file, opened on first use if the disk did not allow it before.
    file: OnceLock<File>,
    /// Slot of this process.
    slot: usize,
    /// Next value for the slot. Values count up from the random number `first`, so that the value of another process is
    /// not mistaken for one of this process.
    next: AtomicU64,
    first: u64,
    /// Counter of all notifications; `others` counts those from other processes.
    all: watch::Sender<u64>,
    others: watch::Sender<u64>,
}

/// Contents of the signal file.
type Slots = [u8; SLOTS * SLOT_BYTES];

/// Watcher of the signal file, active until dropped.
pub(crate) struct SignalWatcher {
    watcher: Option<FileWatcher>,
}

impl SignalWatcher {
    /// Returns true if file events are available.
    pub(crate) fn is_active(&self) -> bool {
        self.watcher.is_some()
    }
}

impl ChangeSignal {
    pub(crate) fn open(folder: &Dir) -> Result<Self, FileError> {
        let file = OnceLock::new();
        match folder.open_own(NAME) {
            Ok(opened) => drop(file.set(opened)),
            // The file is optional, because subscribers also poll.
            Err(error) if error.is_disk() => {}
            Err(error) => return Err(error),
        }
        let path = folder.path().join(NAME);
        let first = fastrand::u64(..);
        let inner = Inner {
            path,
            folder: folder.clone(),
            file,
            slot: fastrand::usize(..SLOTS),
            next: AtomicU64::new(first),
            first,
            all: watch::channel(0).0,
            others: watch::channel(0).0,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Notifies all processes. A failed write is not an error, because subscribers also poll.
    pub(crate) fn notify(&self) {
        let value = self.0.next.fetch_add(1, Ordering::Relaxed);
        if let Some(file) = self.0.file() {
            let _ = file.write_at(&value.to_le_bytes(), (self.0.slot * SLOT_BYTES) as u64);
        }
        count(&self.0.all);
    }

    /// Subscribes to changes of the journal by any process.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.all.subscribe()
    }

    /// Subscribes to changes of the journal by other processes.
    pub(crate) fn subscribe_to_others(&self) -> watch::Receiver<u64> {
        self.0.others.subscribe()
    }

    /// Starts to watch for notifications from other processes.
    pub(crate) fn watch_others(&self) -> SignalWatcher {
        let (signal, mut known) = (self.clone(), None);
        let on_event = move |event| {
            if let FileEvent::Changed(change) = event
                && !matches!(change.kind, ChangeKind::Modified | ChangeKind::Attributes)
            {
                return;
            }
            let slots = signal.read_other_slots();
            if slots.is_none() || slots != known {
                known = slots;
                count(&signal.0.others);
                count(&signal.0.all);
            }
        };
        let watcher = FileWatcher::new(on_event)
            .and_then(|mut watcher| watcher.watch(&self.0.path, Depth::Folder).map(|()| watcher));
        match watcher {
            Ok(watcher) => SignalWatcher { watcher: Some(watcher) },
            Err(error) => {
                tracing::debug!(error = %error, "no file events; polling every {POLL_INTERVAL:?} instead");
                SignalWatcher { watcher: None }
            }
        }
    }

    /// Reads the signal file without this process's own writes.
    ///
    /// Returns `None` if the file cannot be read.
    fn read_other_slots(&self) -> Option<Slots> {
        let inner = &self.0;
        let mut slots: Slots = [0; SLOTS * SLOT_BYTES];
        // The file is short until a process has written to the last slot.
        let _ = inner.file()?.read_at(&mut slots, 0).ok()?;
        let (words, _) = slots.as_chunks_mut::<SLOT_BYTES>();
        let own = words.get_mut(inner.slot)?;
        let count = u64::from_le_bytes(*own).wrapping_sub(inner.first);
        if count < inner.next.load(Ordering::Relaxed).wrapping_sub(inner.first) {
            *own = [0; SLOT_BYTES];
        }
        Some(slots)
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
#[path = "change_signal_tests.rs"]
mod tests;
