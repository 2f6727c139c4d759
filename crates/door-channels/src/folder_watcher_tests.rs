use switchboard_sys::file_watcher::PollReason as Unreliable;

use super::*;
use crate::test_channels::{with_timeout, write_carelessly};

fn config(detection: Detection) -> Config {
    Config { detection, ..Config::new("/") }
}

#[test]
fn polling_backs_off_to_two_seconds() {
    let mut interval = PollInterval::of(
        WatchMode::Polling(PollReason::Unreliable(Unreliable::Network)),
        &config(Detection::Automatic),
    );
    let pauses =
        [true, false, false, false, false, false, true].map(|found| interval.after(found).as_millis());
    assert_eq!(pauses, [500, 750, 1125, 1687, 2000, 2000, 500]);
    let mut steady = PollInterval::of(WatchMode::Events, &config(Detection::Automatic));
    assert_eq!([true, false].map(|found| steady.after(found).as_secs()), [15, 15]);
    for _ in 0..100 {
        let pause = jittered(Duration::from_secs(2)).as_millis();
        assert!((1800..=2200).contains(&pause), "{pause}");
    }
}

#[tokio::test]
async fn probe_detects_missing_events() {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    let events = Arc::<Events>::default();
    let watcher = watch(folder.path(), Depth::Folder, is_message_file, events.clone()).unwrap();
    assert!(with_timeout(is_reported(&dir, &events)).await);
    drop(watcher);
    assert!(!with_timeout(is_reported(&dir, &Events::default())).await, "nobody reports to that one");
    assert_eq!(dir.names().unwrap(), [""; 0], "the probe is gone");
}

/// The dropped events concern irrelevant files only, so the overflow alone can signal a change.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn dropped_events_signal_a_change() {
    use std::os::unix::fs::PermissionsExt;
    let kept = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let kept: usize = kept.trim().parse().unwrap();
    for (changes, is_dropped) in [(10, false), (kept + 100, true)] {
        let folder = tempfile::TempDir::new().unwrap();
        let dir = Dir::open_root(folder.path()).unwrap();
        let message = "msg-20260111-163315-claude-4c78.json";
        let others = [".tmp-1", ".tmp-2"].map(|name| folder.path().join(name));
        write_carelessly(&folder.path().join(message), "{}");
        for other in &others {
            write_carelessly(other, "");
        }
        let events = Arc::<Events>::default();
        let _watcher = watch(folder.path(), Depth::Folder, is_message_file, events.clone()).unwrap();
        // Blocks the event thread on its first event.
        let busy = events.touched.lock();
        assert!(dir.remove(message).unwrap());
        for number in 0..changes {
            // Alternates, because two equal events in a row are merged.
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&others[number % 2], mode).unwrap();
        }
        drop(busy);
        with_timeout(events.changed_signal.notified()).await;
        if is_dropped {
            with_timeout(events.changed_signal.notified()).await;
        } else {
            write_carelessly(&folder.path().join(PROBE), "");
            with_timeout(events.probe.notified()).await;
            let again = tokio::time::timeout(Duration::ZERO, events.changed_signal.notified()).await;
            assert!(again.is_err(), "nothing was dropped, and nothing else is a hint");
        }
    }
}

#[test]
fn modified_and_removed_files_are_recorded() {
    let mut touched = HashSet::new();
    for (kind, path) in [
        (ChangeKind::Created, "/c/msg-1.json"),
        (ChangeKind::Attributes, "/c/msg-2.json"),
        (ChangeKind::Modified, "/c/notes.txt"),
        (ChangeKind::Modified, "/c/msg-3.json"),
        (ChangeKind::Removed, "/c/msg-4.json"),
    ] {
        note_touched(&FileChange::new(kind, path), &mut touched);
    }
    assert_eq!(touched, ["/c/msg-3.json", "/c/msg-4.json"].map(PathBuf::from).into());
}

#[tokio::test]
async fn change_or_poll_wakes_the_watcher() {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    let mut watcher =
        FolderWatcher::open(&dir, Depth::Folder, is_message_file, &config(Detection::Automatic)).await;
    let message = dir.path().join("msg-20260111-163315-claude-4c78.json");
    write_carelessly(&message, "{}");
    let changes = with_timeout(watcher.next(false, Duration::from_hours(1))).await;
    assert_eq!(changes, Some(Changes::Named(vec![message])));
    let quick = Config { rescan_network: Duration::from_millis(20), ..config(Detection::Polling) };
    let mut watcher = FolderWatcher::open(&dir, Depth::Folder, is_message_file, &quick).await;
    assert_eq!(with_timeout(watcher.next(false, Duration::from_hours(1))).await, Some(Changes::Clock));
    let seldom = Config { rescan_network: Duration::from_hours(1), ..config(Detection::Polling) };
    let mut watcher = FolderWatcher::open(&dir, Depth::Folder, is_message_file, &seldom).await;
    let early = with_timeout(watcher.next(false, Duration::from_millis(1))).await;
    assert_eq!(early, None, "it is not time yet");
}

/// The answer from this host has an event and the question from another host has none: read by name, the
/// answer would come first.
#[tokio::test]
async fn event_in_polled_folder_causes_a_listing() {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    let mut watcher =
        FolderWatcher::open(&dir, Depth::Folder, is_message_file, &config(Detection::Automatic)).await;
    watcher.mode = WatchMode::Polling(PollReason::Unreliable(Unreliable::Network));
    write_carelessly(&dir.path().join("msg-20260111-163315-claude-4c78.json"), "{}");
    assert_eq!(with_timeout(watcher.next(false, Duration::from_hours(1))).await, Some(Changes::Unknown));
}

#[tokio::test]
async fn new_channel_is_listed() {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    let mut watcher =
        FolderWatcher::open(&dir, Depth::Tree, is_message_file, &config(Detection::Automatic)).await;
    std::fs::create_dir(folder.path().join("general")).unwrap();
    assert_eq!(with_timeout(watcher.next(false, Duration::from_hours(1))).await, Some(Changes::Unknown));
}

#[test]
fn unnamed_change_is_unknown() {
    let top = Path::new("/c");
    let of = |kind, is_folder, path: &str| {
        let mut change = FileChange::new(kind, path);
        change.is_folder = is_folder;
        change
    };
    let note = |change: &FileChange, changed: &mut Changed| {
        note_changed(change, Some(top), is_message_file, changed)
    };
    for (change, is_news, is_incomplete) in [
        (of(ChangeKind::Created, false, "/c/general/msg-20260111-163315-a-0001.json"), true, false),
        (of(ChangeKind::Removed, false, "/c/general/msg-20260111-163315-a-0001.json"), true, false),
        (of(ChangeKind::Created, false, "/c/general/notes.txt"), false, false),
        (of(ChangeKind::Created, false, "/c/general"), true, true),
        (of(ChangeKind::Created, true, "/c/general/archive"), true, true),
        (of(ChangeKind::Modified, false, "/c/general"), true, true),
        (of(ChangeKind::Removed, true, "/c"), true, true),
    ] {
        let mut changed = Changed::default();
        let found = (note(&change, &mut changed), changed.is_incomplete);
        assert_eq!(found, (is_news, is_incomplete), "{change:?}");
    }
    let mut many = Changed::default();
    for number in 0..=NAMED {
        assert!(!many.is_incomplete);
        let path = format!("/c/general/msg-20260111-163315-a-{number:04x}.json");
        note(&of(ChangeKind::Created, false, &path), &mut many);
    }
    assert!(many.is_incomplete && many.files.len() == NAMED, "of more, nothing is kept");
}

#[test]
fn matching_files_are_named() {
    let mut changed = Changed::default();
    let beat = FileChange::new(ChangeKind::Created, "/presence/qc-1.json");
    assert!(!note_changed(&beat, None, is_message_file, &mut changed));
    assert!(note_changed(&beat, None, |name| name.strip_suffix(".json").is_some(), &mut changed));
    assert_eq!(changed.files.len(), 1);
}
