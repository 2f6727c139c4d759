//! Folder watcher: detects changes by file events where they are reliable, and by polling elsewhere.
//!
//! An event names the file to read. A periodic listing finds files without an event; so does a listing after an event
//! queue overflow. If another machine can change the folder, or the file system is unknown, changes may have no event.
//! Such a folder is polled every two seconds, and each event there also causes a listing, because a named file may
//! answer an earlier file without an event. A probe can only prove that events are missing: NFS reports changes of its
//! own host but not those of other hosts.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_sys::debounce::{Debounce, Debouncer};
use switchboard_sys::file_watcher::{
    ChangeKind, Depth, FileChange, FileEvent, FileWatcher, WatchError, poll_reason,
};
use switchboard_sys::files::{Created, Dir, Durability};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::{Config, Detection};
use crate::ids::id_of_file;
use crate::tree::blocking;

/// Temporary file that probes whether events arrive. Its name is not valid for a message or a channel.
const PROBE: &str = ".probe";

/// Timeout of the probe, long enough for a busy machine.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of modified files that are remembered. Further ones are dropped, because `doctor` compares all files
/// with the journal.
const TOUCHED: usize = 1024;

/// Maximum number of changed files that are named. Beyond it, the folder is listed instead.
const NAMED: usize = 1024;

/// How long each change causes a listing after a folder was created or removed. The watch of a new folder may not be
/// set yet.
const UNSETTLED: Duration = Duration::from_secs(1);

/// Changes of the watched folder since the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Only these matching files changed.
    Named(Vec<PathBuf>),
    /// Any file may have changed: events were dropped, or a folder was created or removed.
    Unknown,
    /// The poll interval has elapsed.
    Clock,
}

/// Detection mode of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchMode {
    /// File events, with an occasional poll.
    Events,
    /// Polling, with events as hints.
    Polling(PollReason),
}

/// Reason why a folder is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum PollReason {
    #[error("polling is set in the settings")]
    Told,
    #[error(transparent)]
    Unreliable(switchboard_sys::file_watcher::PollReason),
    #[error("a change made there was not reported")]
    Deaf,
}

/// State shared between the event thread and the watcher.
#[derive(Default)]
struct Events {
    changed_signal: Notify,
    probe: Notify,
    touched: Mutex<HashSet<PathBuf>>,
    changed: Mutex<Changed>,
}

/// Files named by events since the last call.
#[derive(Default)]
struct Changed {
    files: HashSet<PathBuf>,
    /// True if there were changes other than to the named files.
    is_incomplete: bool,
}

/// Returns true for the file name of a channel message.
pub(crate) fn is_message_file(name: &str) -> bool {
    id_of_file(name).is_some()
}

/// Watcher that detects changes of one folder.
pub(crate) struct FolderWatcher {
    events: Arc<Events>,
    interval: PollInterval,
    /// Time of the next poll, independent of file events.
    due: Option<Instant>,
    debouncer: Debouncer,
    /// Time until which each change counts as [`Changes::Unknown`].
    unsettled: Option<Instant>,
    mode: WatchMode,
    _watcher: Option<FileWatcher>,
}

impl FolderWatcher {
    /// Starts watching the files whose names `counts` accepts. The caller reads the existing files.
    pub(crate) async fn open(dir: &Dir, depth: Depth, counts: fn(&str) -> bool, config: &Config) -> Self {
        let events = Arc::<Events>::default();
        let watcher = match config.detection {
            Detection::Polling => None,
            Detection::Automatic => watch(dir.path(), depth, counts, events.clone())
                .inspect_err(
                    |error| tracing::warn!(folder = %dir.path().display(), error = %error, "no file events"),
                )
                .ok(),
        };
        let mut mode = match (config.detection, poll_reason(dir.path(), watcher.is_some())) {
            (Detection::Polling, _) => WatchMode::Polling(PollReason::Told),
            (Detection::Automatic, Some(reason)) => WatchMode::Polling(PollReason::Unreliable(reason)),
            (Detection::Automatic, None) => WatchMode::Events,
        };
        if mode == WatchMode::Events && !is_reported(dir, &events).await {
            mode = WatchMode::Polling(PollReason::Deaf);
        }
        if let WatchMode::Polling(reason) = mode {
            tracing::info!(folder = %dir.path().display(), reason = %reason, "polling every few seconds");
        }
        let interval = PollInterval::of(mode, config);
        let debouncer = Debouncer::new(Debounce::NAMED_FILES);
        Self { events, interval, due: None, debouncer, unsettled: None, mode, _watcher: watcher }
    }

    /// Waits for changes; returns `None` after `most`.
    ///
    /// `found` is true if the last scan found something, which makes further changes likely and shortens the poll
    /// interval.
    pub(crate) async fn next(&mut self, found: bool, most: Duration) -> Option<Changes> {
        let now = Instant::now();
        let due = *self.due.get_or_insert_with(|| now + jittered(self.interval.after(found)));
        let until = now.checked_add(most).map_or(due, |most| most.min(due));
        let rung = tokio::time::timeout_at(until, self.events.changed_signal.notified()).await.is_ok();
        if !rung && Instant::now() < due {
            return None;
        }
        if rung {
            self.debouncer.wait().await;
        }
        self.debouncer.record_round(Instant::now());
        let changed = std::mem::take(&mut *self.events.changed.lock());
        if changed.is_incomplete {
            self.unsettled = Some(Instant::now() + UNSETTLED);
        }
        let is_unsettled = self.unsettled.is_some_and(|until| Instant::now() < until);
        let is_unknown = is_unsettled || !self.relies_on_events();
        Some(match (rung, is_unknown || Instant::now() >= due) {
            // Named files are read at once, and the next poll stays due.
            (true, false) => Changes::Named(changed.files.into_iter().collect()),
            (true, true) => {
                self.due = None;
                Changes::Unknown
            }
            (false, _) => {
                self.due = None;
                Changes::Clock
            }
        })
    }

    /// Returns true if every change has an event, so that polls are rare.
    pub(crate) fn relies_on_events(&self) -> bool {
        self.mode == WatchMode::Events
    }

    /// Drains the set of message files that were modified, replaced or removed since the last call.
    pub(crate) fn touched(&self) -> Vec<PathBuf> {
        self.events.touched.lock().drain().collect()
    }
}

fn watch(
    folder: &Path,
    depth: Depth,
    counts: fn(&str) -> bool,
    events: Arc<Events>,
) -> Result<FileWatcher, WatchError> {
    // Created and removed folders matter only if subfolders are watched too.
    let top = (depth == Depth::Tree).then(|| folder.to_owned());
    let mut watcher = FileWatcher::new(move |event| match event {
        FileEvent::Changed(change) if is_probe(&change) => events.probe.notify_one(),
        FileEvent::Changed(change) => {
            note_touched(&change, &mut events.touched.lock());
            if note_changed(&change, top.as_deref(), counts, &mut events.changed.lock()) {
                events.changed_signal.notify_one();
            }
        }
        FileEvent::Missed => {
            events.changed.lock().is_incomplete = true;
            events.changed_signal.notify_one();
        }
    })?;
    watcher.watch(folder, depth)?;
    Ok(watcher)
}

/// Probes with a temporary file whether events arrive. If another process has created the file, its removal is the
/// change that should be reported.
async fn is_reported(dir: &Dir, events: &Events) -> bool {
    let place = dir.clone();
    let probed = blocking(move || {
        let made = place.create_new(PROBE, b"", Durability::Unsynced)?;
        let removed = place.remove(PROBE)?;
        Ok(made == Created::Created || removed)
    });
    match probed.await {
        Ok(true) => tokio::time::timeout(PROBE_WAIT, events.probe.notified()).await.is_ok(),
        // A folder that is not writable cannot be probed, so events are assumed to arrive.
        Ok(false) | Err(_) => true,
    }
}

fn is_probe(change: &FileChange) -> bool {
    change.paths.iter().all(|path| path.file_name().is_some_and(|name| name == PROBE))
}

/// Records the matching files of an event; returns false if the event is irrelevant. `top` is the folder of all
/// channels, if that is watched.
fn note_changed(
    change: &FileChange,
    top: Option<&Path>,
    counts: fn(&str) -> bool,
    changed: &mut Changed,
) -> bool {
    let mut is_news = false;
    for path in &change.paths {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_file = name.is_some_and(counts);
        let is_channel = top.is_some_and(|top| path == top || path.parent() == Some(top));
        if is_file && changed.files.len() < NAMED {
            changed.files.insert(path.clone());
        } else if is_file || is_channel || change.is_folder {
            // There are too many files to name, or a channel folder was created or removed.
            changed.is_incomplete = true;
        } else {
            continue;
        }
        is_news = true;
    }
    is_news
}

/// Records modified or removed message files.
///
/// A message file gets its name only when it is complete, so a later change of its content is a modification. Creating
/// a hard link changes only attributes and does not count.
fn note_touched(change: &FileChange, touched: &mut HashSet<PathBuf>) {
    if !matches!(change.kind, ChangeKind::Modified | ChangeKind::Removed) {
        return;
    }
    let is_message =
        |path: &&PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_message_file);
    for path in change.paths.iter().filter(is_message) {
        if touched.len() < TOUCHED {
            touched.insert(path.clone());
        }
    }
}

/// Poll interval with backoff.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PollInterval {
    least: Duration,
    most: Duration,
    now: Duration,
}

impl PollInterval {
    fn of(mode: WatchMode, config: &Config) -> Self {
        let (least, most) = match mode {
            // The interval is constant, because events report the changes.
            WatchMode::Events => (config.rescan, config.rescan),
            // Poll after a quarter of the interval once something was found, then back off up to the whole interval.
            WatchMode::Polling(_) => (config.rescan_network / 4, config.rescan_network),
        };
        Self { least, most, now: most }
    }

    fn after(&mut self, found: bool) -> Duration {
        self.now = if found { self.least } else { self.now.mul_f64(1.5).min(self.most) };
        self.now
    }
}

/// Adds 10 % jitter, so that processes that share a mount do not all poll at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
#[path = "folder_watcher_tests.rs"]
mod tests;
