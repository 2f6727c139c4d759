//! How changes below a folder are noticed: by file events where they can be trusted, by looking where not.
//!
//! An event names the file to read. A listing finds what had no event: now and then, and whenever an event says that others
//! were dropped. Where another machine, or an unknown one, can change the folder, a change may come without an event. Such a
//! folder is polled every two seconds, and an event there causes a listing too: the files that it names may answer
//! earlier files that had no event. A probe can only show that events do *not* come: NFS reports the changes of its own host
//! and not those of others.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{CreateKind, ModifyKind, RemoveKind};
use notify::{Event, EventKind, RecursiveMode, Watcher};
use parking_lot::Mutex;
use switchboard_sys::files::{Created, Dir, Durability, is_in_the_making};
use switchboard_sys::platform::{self, Filesystem};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::{Config, Detection};
use crate::ids::id_of_file;
use crate::tree::blocking;

/// How long to gather events before looking again: one message of a careless writer makes several.
const DEBOUNCE: Duration = Duration::from_millis(2);

/// After so long without an event the next one is looked at right away.
const IDLE_AFTER: Duration = Duration::from_millis(20);

/// The file that is made and removed to see whether events come. It is no message, and no channel.
const PROBE: &str = ".probe";

/// By then the event of a change that this process made itself is there, also on a machine that is busy.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Most changed files that are remembered until somebody asks for them. Of more nothing is kept: `doctor` compares
/// all files with the journal.
const TOUCHED: usize = 1024;

/// Most changed files that are named. Where more came at once, the folder is listed.
const NAMED: usize = 1024;

/// For how long after a change of a folder the folder is listed: its watch may not have been set yet.
const UNSETTLED: Duration = Duration::from_secs(1);

/// What changed since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Changes {
    /// These files that count, and nothing else of which there was an event.
    Named(Vec<PathBuf>),
    /// Anything: events were dropped, or a folder came or went.
    Unknown,
    /// Anything, or nothing: it is time for a look.
    Clock,
}

/// How changes of a folder are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchMode {
    /// By events, with a look now and then.
    Events,
    /// By looking again and again, with the events that come as hints.
    Polling(PollReason),
}

/// Why events are not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum PollReason {
    #[error("the settings say so")]
    Told,
    #[error("it is on a network mount")]
    Network,
    #[error("its file system is not known to report every change")]
    Unknown,
    #[error("no watch could be set on it")]
    NoWatch,
    #[error("a change made there was not reported")]
    Deaf,
}

/// What the thread that hears the events shares with whoever waits for them.
#[derive(Default)]
struct Events {
    changed_signal: Notify,
    probe: Notify,
    touched: Mutex<HashSet<PathBuf>>,
    changed: Mutex<Changed>,
}

/// What events have named since the last look.
#[derive(Default)]
struct Changed {
    files: HashSet<PathBuf>,
    /// Whether something changed that is not among them.
    is_incomplete: bool,
}

/// Whether a file is one of a channel's messages.
pub(crate) fn is_message_file(name: &str) -> bool {
    id_of_file(name).is_some()
}

/// Notices changes below one folder.
pub(crate) struct FolderWatcher {
    events: Arc<Events>,
    interval: PollInterval,
    /// When to look again, whatever the events say.
    due: Option<Instant>,
    looked: Option<Instant>,
    /// Until when each change counts as unknown.
    unsettled: Option<Instant>,
    mode: WatchMode,
    _watcher: Option<notify::RecommendedWatcher>,
}

impl FolderWatcher {
    /// Begins to listen to the files whose names count. What changes from now on is noticed; what was there before is for the
    /// caller to read.
    pub(crate) async fn open(
        dir: &Dir,
        depth: RecursiveMode,
        counts: fn(&str) -> bool,
        config: &Config,
    ) -> Self {
        let events = Arc::<Events>::default();
        let watcher = match config.detection {
            Detection::Polling => None,
            Detection::Automatic => watch(dir.path(), depth, counts, events.clone())
                .inspect_err(
                    |error| tracing::warn!(folder = %dir.path().display(), error = %error, "no file events"),
                )
                .ok(),
        };
        let mut mode = mode(config.detection, platform::filesystem(dir.path()), watcher.is_some());
        if mode == WatchMode::Events && !is_reported(dir, &events).await {
            mode = WatchMode::Polling(PollReason::Deaf);
        }
        if let WatchMode::Polling(reason) = mode {
            tracing::info!(folder = %dir.path().display(), reason = %reason, "looking every few seconds");
        }
        let interval = PollInterval::of(mode, config);
        Self { events, interval, due: None, looked: None, unsettled: None, mode, _watcher: watcher }
    }

    /// Returns what may have changed when it is time to look, and nothing after `most` where it is not. `found` says whether
    /// the last look found something: where it did, more is likely to come.
    pub(crate) async fn next(&mut self, found: bool, most: Duration) -> Option<Changes> {
        let now = Instant::now();
        let due = *self.due.get_or_insert_with(|| now + jittered(self.interval.after(found)));
        let until = now.checked_add(most).map_or(due, |most| most.min(due));
        let rung = tokio::time::timeout_at(until, self.events.changed_signal.notified()).await.is_ok();
        if !rung && Instant::now() < due {
            return None;
        }
        let is_quiet = self.looked.is_none_or(|looked| looked.elapsed() > IDLE_AFTER);
        if rung && !is_quiet {
            tokio::time::sleep(DEBOUNCE).await;
        }
        self.looked = Some(Instant::now());
        let changed = std::mem::take(&mut *self.events.changed.lock());
        if changed.is_incomplete {
            self.unsettled = Some(Instant::now() + UNSETTLED);
        }
        let is_unsettled = self.unsettled.is_some_and(|until| Instant::now() < until);
        let is_unknown = is_unsettled || !self.relies_on_events();
        Some(match (rung, is_unknown || Instant::now() >= due) {
            // What events name is read at once, and the look by the clock stays due.
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

    /// Whether the folder is looked at seldom, because every change is to make an event.
    pub(crate) fn relies_on_events(&self) -> bool {
        self.mode == WatchMode::Events
    }

    /// The message files that were changed in place, replaced or removed since the last call.
    pub(crate) fn touched(&self) -> Vec<PathBuf> {
        self.events.touched.lock().drain().collect()
    }
}

/// How a folder is to be watched, but for what a probe may say against it.
fn mode(detection: Detection, filesystem: Filesystem, has_watch: bool) -> WatchMode {
    WatchMode::Polling(match (detection, filesystem, has_watch) {
        (Detection::Polling, ..) => PollReason::Told,
        (Detection::Automatic, Filesystem::Network, _) => PollReason::Network,
        (Detection::Automatic, Filesystem::Unknown, _) => PollReason::Unknown,
        (Detection::Automatic, Filesystem::Local, false) => PollReason::NoWatch,
        (Detection::Automatic, Filesystem::Local, true) => return WatchMode::Events,
    })
}

fn watch(
    folder: &Path,
    depth: RecursiveMode,
    counts: fn(&str) -> bool,
    events: Arc<Events>,
) -> notify::Result<notify::RecommendedWatcher> {
    // Only where the folders in it are watched as well does it matter that one of them came or went.
    let top = (depth == RecursiveMode::Recursive).then(|| folder.to_owned());
    let hear = move |event: notify::Result<Event>| match event {
        Ok(event) if is_probe(&event) => events.probe.notify_one(),
        // An overflow and a fault are hints like any other.
        Ok(event) if !is_hint(&event) => {}
        Ok(event) => {
            note_touched(&event, &mut events.touched.lock());
            if note_changed(&event, top.as_deref(), counts, &mut events.changed.lock()) {
                events.changed_signal.notify_one();
            }
        }
        Err(_) => {
            events.changed.lock().is_incomplete = true;
            events.changed_signal.notify_one();
        }
    };
    let settings = notify::Config::default().with_follow_symlinks(false);
    let mut watcher = notify::RecommendedWatcher::new(hear, settings)?;
    watcher.watch(folder, depth)?;
    Ok(watcher)
}

/// Makes a change and waits for its event. Whether the file is one's own or another process's makes no difference:
/// either is a change.
async fn is_reported(dir: &Dir, events: &Events) -> bool {
    let place = dir.clone();
    let probed = blocking(move || {
        let made = place.create_new(PROBE, b"", Durability::Later)?;
        let removed = place.remove(PROBE)?;
        Ok(made == Created::Created || removed)
    });
    match probed.await {
        Ok(true) => tokio::time::timeout(PROBE_WAIT, events.probe.notified()).await.is_ok(),
        // A folder that cannot be written to says nothing about events.
        Ok(false) | Err(_) => true,
    }
}

fn is_probe(event: &Event) -> bool {
    !event.paths.is_empty()
        && event.paths.iter().all(|path| path.file_name().is_some_and(|name| name == PROBE))
}

/// Our own reading makes events too, and so do files that are still being written under another name.
fn is_hint(event: &Event) -> bool {
    let is_temp =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_in_the_making);
    let only_temps = !event.paths.is_empty() && event.paths.iter().all(is_temp);
    event.need_rescan() || (!event.kind.is_access() && !only_temps)
}

/// Notes which of the files that count an event names; false where it is about nothing that is looked at. `top` is the folder
/// of all channels, where that is what is watched.
fn note_changed(event: &Event, top: Option<&Path>, counts: fn(&str) -> bool, changed: &mut Changed) -> bool {
    if event.need_rescan() || event.paths.is_empty() {
        changed.is_incomplete = true;
        return true;
    }
    let mut is_news = false;
    for path in &event.paths {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_file = name.is_some_and(counts);
        let is_channel = top.is_some_and(|top| path == top || path.parent() == Some(top));
        if is_file && changed.files.len() < NAMED {
            changed.files.insert(path.clone());
        } else if is_file || is_channel || is_folder(event.kind) {
            // Too many to name, or a channel that came or went.
            changed.is_incomplete = true;
        } else {
            continue;
        }
        is_news = true;
    }
    is_news
}

fn is_folder(kind: EventKind) -> bool {
    matches!(kind, EventKind::Create(CreateKind::Folder) | EventKind::Remove(RemoveKind::Folder))
}

/// A message gets its name when it is whole, so that a change of its content comes after that. Links that
/// come and go change the attributes alone.
fn note_touched(event: &Event, touched: &mut HashSet<PathBuf>) {
    let is_change = match event.kind {
        EventKind::Modify(kind) => !matches!(kind, ModifyKind::Metadata(_)),
        kind => kind.is_remove(),
    };
    if !is_change {
        return;
    }
    let is_message =
        |path: &&PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_message_file);
    for path in event.paths.iter().filter(is_message) {
        if touched.len() < TOUCHED {
            touched.insert(path.clone());
        }
    }
}

/// How long to leave it between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PollInterval {
    least: Duration,
    most: Duration,
    now: Duration,
}

impl PollInterval {
    fn of(mode: WatchMode, config: &Config) -> Self {
        let (least, most) = match mode {
            // Always the same: the events do the rest.
            WatchMode::Events => (config.rescan, config.rescan),
            // A quarter of the pause after something was found, then longer from look to look, up to the pause.
            WatchMode::Polling(_) => (config.rescan_network / 4, config.rescan_network),
        };
        Self { least, most, now: most }
    }

    fn after(&mut self, found: bool) -> Duration {
        self.now = if found { self.least } else { self.now.mul_f64(1.5).min(self.most) };
        self.now
    }
}

/// Give or take a tenth: many that share a mount must not all look at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
#[path = "folder_watcher_tests.rs"]
mod tests;
