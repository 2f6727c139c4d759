use std::path::Path;

use super::*;
use crate::test_hub::name;
use crate::{Database, DatabaseState, Hub, HubConfig, Registration};

fn keyed(folder: &Path, key: &HubKey) -> HubConfig {
    HubConfig { key: Some(key.clone()), ..HubConfig::new(folder) }
}

fn key(folder: &Path, whose: &str) -> HubKey {
    HubKey::load_or_create(&folder.join(whose)).expect("a key")
}

async fn knows_codex(hub: &Hub) -> bool {
    hub.directory().await.expect("read").agent(&"codex".parse().expect("a name")).is_some()
}

/// A folder whose database was bound with one key, and another key.
async fn from_elsewhere() -> (tempfile::TempDir, HubKey) {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::open(keyed(folder.path(), &key(folder.path(), "theirs"))).await.expect("open");
    hub.agents().register(Registration::mailbox(name("codex"))).await.expect("registered");
    hub.shut_down().await;
    let ours = key(folder.path(), "ours");
    (folder, ours)
}

#[tokio::test]
async fn foreign_database_is_quarantined_once() {
    let (folder, key) = from_elsewhere().await;
    let dir = Dir::open_root(folder.path()).expect("it opens");
    let state =
        Database::check(dir.clone(), Some(key.clone()), crate::Extent::Everything).await.expect("looked");
    assert_eq!(state, DatabaseState::Foreign);
    let hub = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    assert!(hub.database().quarantined().is_some_and(|aside| aside.exists()));
    assert!(!knows_codex(&hub).await && hub.database().needs_rebuild().await.expect("read"));
    hub.shut_down().await;
    let again = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    assert_eq!(again.database().quarantined(), None);
    again.shut_down().await;
    assert_eq!(list(&dir, Some(&key)).expect("listed").len(), 1);
}

#[tokio::test]
async fn concurrent_opens_quarantine_once() {
    let (folder, key) = from_elsewhere().await;
    let opening = (0..6).map(|_| tokio::spawn(Hub::open(keyed(folder.path(), &key))));
    let mut quarantined = 0;
    for opening in opening.collect::<Vec<_>>() {
        let hub = opening.await.expect("joined").expect("open");
        quarantined += usize::from(hub.database().quarantined().is_some());
    }
    assert_eq!(quarantined, 1);
    let dir = Dir::open_root(folder.path()).expect("it opens");
    assert_eq!(list(&dir, Some(&key)).expect("listed").len(), 1);
}

#[tokio::test]
async fn adopted_database_replaces_current() {
    let (folder, key) = from_elsewhere().await;
    let dir = Dir::open_root(folder.path()).expect("it opens");
    Hub::open(keyed(folder.path(), &key)).await.expect("open").shut_down().await;
    let name = list(&dir, Some(&key)).expect("listed").pop().expect("one");
    assert_eq!(describe(&dir, &name).expect("described").senders, []);
    let replaced = adopt(&dir, &name, &key).expect("adopted").expect("one was there");
    assert!(replaced.exists());
    let hub = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    assert!(knows_codex(&hub).await && hub.database().quarantined().is_none());
    hub.shut_down().await;
}

#[tokio::test]
async fn database_in_place_is_adopted_there() {
    let (folder, key) = from_elsewhere().await;
    let dir = Dir::open_root(folder.path()).expect("it opens");
    assert_eq!(list(&dir, Some(&key)).expect("listed"), [DATABASE]);
    assert_eq!(adopt(&dir, DATABASE, &key).expect("adopted"), None);
    let hub = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    assert!(knows_codex(&hub).await);
    let busy = adopt(&dir, DATABASE, &key).expect_err("in use");
    assert!(matches!(busy, HubError::ForeignInUse { .. }), "{busy}");
}

#[tokio::test]
async fn recovered_database_stays_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = key(folder.path(), "ours");
    let hub = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    hub.agents().register(Registration::mailbox(name("codex"))).await.expect("registered");
    hub.shut_down().await;
    drop(hub);
    // The log has a newer copy of the page, which would hide the damage.
    let log = Connection::open(folder.path().join(DATABASE)).expect("opens");
    log.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(log);
    // In place, as a disk damages it: the number of the schema.
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(DATABASE)).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 4], 60).expect("written");
    let hub = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    assert!(hub.database().moved_aside().is_some() && hub.database().quarantined().is_none());
    assert!(knows_codex(&hub).await);
    hub.shut_down().await;
    drop(hub);
    let again = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    assert!(again.database().quarantined().is_none() && again.database().moved_aside().is_none());
}

#[tokio::test]
async fn damaged_foreign_database_is_not_salvaged() {
    let (folder, key) = from_elsewhere().await;
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(DATABASE)).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 4], 60).expect("written");
    let hub = Hub::open(keyed(folder.path(), &key)).await.expect("open");
    assert!(hub.database().quarantined().is_some() && !knows_codex(&hub).await);
}
