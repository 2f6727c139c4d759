use std::fs;
use std::time::Duration;

use tokio::sync::mpsc;

use super::*;

/// Longer than any event takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

fn watcher() -> (FileWatcher, mpsc::Receiver<FileEvent>) {
    let (sender, events) = mpsc::channel(1024);
    (FileWatcher::new(move |event| drop(sender.try_send(event))).unwrap(), events)
}

async fn until(events: &mut mpsc::Receiver<FileEvent>, path: &Path) {
    let named = async {
        while let Some(event) = events.recv().await {
            if matches!(event, FileEvent::Changed(change) if change.paths.iter().any(|changed| changed == path))
            {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, named).await.unwrap_or_else(|_| panic!("no event of {}", path.display()));
}

#[test]
fn events_are_trusted_on_watched_local_disk() {
    use Filesystem::{Local, Network, Unknown};
    for (filesystem, is_watched, reason) in [
        (Local, true, None),
        (Local, false, Some(PollReason::NoWatch)),
        (Network, true, Some(PollReason::Network)),
        (Unknown, true, Some(PollReason::UnknownFilesystem)),
    ] {
        assert_eq!(choose_poll_reason(filesystem, is_watched), reason);
    }
}

#[tokio::test]
async fn recreated_folder_is_watched_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("a");
    let (mut watcher, mut events) = watcher();
    // Some file systems give the new folder the inode of the old one, so it happens several times.
    for round in 0..5 {
        fs::create_dir(&folder).unwrap();
        assert!(watcher.follow([(folder.clone(), Depth::Folder)]).is_empty());
        let file = folder.join(format!("file-{round}"));
        fs::File::create_new(&file).unwrap();
        until(&mut events, &file).await;
        fs::remove_dir_all(&folder).unwrap();
        until(&mut events, &folder).await;
    }
    let failed = watcher.follow([(folder.clone(), Depth::Folder)]);
    assert_eq!(failed.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&folder], "it does not exist");
}

#[tokio::test]
async fn path_no_longer_wanted_is_not_watched() {
    let root = tempfile::tempdir().unwrap();
    let [kept, dropped] = ["kept", "dropped"].map(|name| root.path().join(name));
    let (mut watcher, mut events) = watcher();
    for folder in [&kept, &dropped] {
        fs::create_dir(folder).unwrap();
    }
    assert!(watcher.follow([&kept, &dropped].map(|folder| (folder.clone(), Depth::Folder))).is_empty());
    assert!(watcher.follow([(kept.clone(), Depth::Folder)]).is_empty());
    fs::File::create_new(dropped.join("unseen")).unwrap();
    fs::File::create_new(kept.join("seen")).unwrap();
    let first = tokio::time::timeout(DEADLINE, events.recv()).await.unwrap();
    assert!(matches!(first, Some(FileEvent::Changed(change)) if change.paths == [kept.join("seen")]));
}

#[tokio::test]
async fn tree_reports_new_subfolders() {
    let root = tempfile::tempdir().unwrap();
    let (mut watcher, mut events) = watcher();
    watcher.watch(root.path(), Depth::Tree).unwrap();
    let below = root.path().join("below");
    fs::create_dir(&below).unwrap();
    until(&mut events, &below).await;
}
