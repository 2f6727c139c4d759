#![expect(clippy::disallowed_methods, reason = "the tests plant files as a checkout does")]

use std::fs;
use std::path::Path;

use super::*;
use crate::test_hub::name;
use crate::{Database, DatabaseState, Hub, HubConfig, Registration};

fn keyed(folder: &Path) -> HubConfig {
    let key = HubKey::load_or_create(&folder.join("key")).expect("a key");
    HubConfig { key: Some(key), ..HubConfig::new(folder) }
}

async fn open(folder: &Path) -> Hub {
    Hub::open(keyed(folder)).await.expect("open")
}

async fn register(folder: &Path, agent: &str) {
    let hub = open(folder).await;
    hub.agents().register(Registration::mailbox(name(agent))).await.expect("registered");
    hub.shut_down().await;
}

async fn agents(hub: &Hub) -> Vec<String> {
    hub.directory().await.expect("read").agents().map(|agent| agent.id.to_string()).collect()
}

/// A closed database that knows codex.
async fn closed() -> (tempfile::TempDir, Dir) {
    let folder = tempfile::tempdir().expect("a folder");
    register(folder.path(), "codex").await;
    let dir = Dir::open_root(folder.path()).expect("it opens");
    (folder, dir)
}

/// A log with content, of a copy of the database in which mallory was registered.
async fn planted_log(folder: &Path) -> Vec<u8> {
    let theirs = tempfile::tempdir().expect("a folder");
    for file in ["hub.db", "hub.db-wal"] {
        fs::copy(folder.join(file), theirs.path().join(file)).expect("copied");
    }
    let hub = Hub::open(HubConfig::new(theirs.path())).await.expect("open");
    hub.agents().register(Registration::mailbox(name("mallory"))).await.expect("registered");
    fs::read(theirs.path().join("hub.db-wal")).expect("read")
}

/// Replaces a file as a checkout does: the name stays, the file is another one.
fn plant(path: &Path, content: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, content).expect("planted");
}

#[tokio::test]
async fn kept_log_holds_what_was_written() {
    let (folder, dir) = closed().await;
    let log = fs::metadata(folder.path().join(LOG)).expect("kept");
    assert!(log.len() > 0, "nothing is checkpointed at close");
    register(folder.path(), "claude").await;
    let again = fs::metadata(folder.path().join(LOG)).expect("kept");
    assert_eq!((log.dev(), log.ino()), (again.dev(), again.ino()));
    let hub = open(folder.path()).await;
    assert_eq!(agents(&hub).await, ["claude", "codex"]);
    assert_eq!((hub.database().planted_files(), list(&dir).expect("listed")), (&[][..], vec![]));
}

#[tokio::test]
async fn planted_log_is_never_replayed() {
    let (folder, dir) = closed().await;
    let log = planted_log(folder.path()).await;
    plant(&folder.path().join(LOG), &log);
    let key = keyed(folder.path()).key;
    let state = Database::check(dir.clone(), key, crate::Extent::Everything).await.expect("looked");
    assert_eq!(state, DatabaseState::PlantedFile { name: LOG.to_owned() });
    let hub = open(folder.path()).await;
    assert!(!agents(&hub).await.contains(&"mallory".to_owned()));
    let [aside] = hub.database().planted_files() else { panic!("{:?}", hub.database().planted_files()) };
    assert_eq!(fs::read(aside).expect("kept"), log);
    assert_eq!(list(&dir).expect("listed").len(), 1);
    assert!(hub.database().needs_rebuild().await.expect("read"), "what the log held is read back from files");
    hub.shut_down().await;
    drop(hub);
    register(folder.path(), "gemini").await;
    let hub = open(folder.path()).await;
    assert!(hub.database().planted_files().is_empty() && agents(&hub).await.contains(&"gemini".to_owned()));
}

#[tokio::test]
async fn planted_log_leaves_running_hub_its_own() {
    let (folder, _) = closed().await;
    let running = open(folder.path()).await;
    let log = planted_log(folder.path()).await;
    plant(&folder.path().join(LOG), &log);
    let refused = Hub::open(keyed(folder.path())).await.err().expect("refused");
    assert!(matches!(refused, HubError::SideFileInUse { .. }) && refused.is_temporary(), "{refused}");
    running.agents().register(Registration::mailbox(name("claude"))).await.expect("registered");
    running.shut_down().await;
    drop(running);
    let hub = open(folder.path()).await;
    assert_eq!(agents(&hub).await, ["claude", "codex"], "all of it was written through");
}

#[tokio::test]
async fn planted_journal_is_never_replayed() {
    for key in [true, false] {
        let (folder, dir) = closed().await;
        let config = || if key { keyed(folder.path()) } else { HubConfig::new(folder.path()) };
        plant(&folder.path().join(JOURNAL), &[0xd9; 5000]);
        let hub = Hub::open(config()).await.expect("open");
        assert_eq!(agents(&hub).await, ["codex"]);
        assert_eq!(hub.database().planted_files().len(), 1);
        assert!(dir.stat(JOURNAL).expect("looked").is_none());
    }
}

#[tokio::test]
async fn symbolic_link_as_log_is_moved_aside() {
    let (folder, dir) = closed().await;
    let target = folder.path().join("precious");
    fs::write(&target, "precious").expect("written");
    for name in SIDE_FILES {
        fs::remove_file(folder.path().join(name)).expect("removed");
        std::os::unix::fs::symlink(&target, folder.path().join(name)).expect("linked");
    }
    register(folder.path(), "claude").await;
    assert_eq!(fs::read(&target).expect("read"), b"precious");
    assert_eq!(list(&dir).expect("listed").len(), 2);
}

#[tokio::test]
async fn removed_log_is_recreated() {
    let (folder, dir) = closed().await;
    // Like sqlite3: the last connection to close checkpoints and removes the log.
    let db = Connection::open(folder.path().join(DATABASE)).expect("opens");
    db.query_row("SELECT count(*) FROM agents", [], |_| Ok(())).expect("read");
    drop(db);
    assert!(!folder.path().join(LOG).exists());
    register(folder.path(), "claude").await;
    let hub = open(folder.path()).await;
    assert_eq!(agents(&hub).await, ["claude", "codex"]);
    assert_eq!(list(&dir).expect("listed"), Vec::<String>::new());
}

#[tokio::test]
async fn empty_unbound_log_is_harmless() {
    let (folder, dir) = closed().await;
    let db = Connection::open(folder.path().join(DATABASE)).expect("opens");
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(db);
    // An interrupted start has created them and not bound them yet.
    for name in SIDE_FILES {
        plant(&folder.path().join(name), b"");
    }
    let hub = open(folder.path()).await;
    assert_eq!(agents(&hub).await, ["codex"]);
    assert_eq!((list(&dir).expect("listed"), hub.database().planted_files().len()), (vec![], 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_opens_renew_once() {
    let (folder, dir) = closed().await;
    let log = planted_log(folder.path()).await;
    plant(&folder.path().join(LOG), &log);
    let opening = (0..6).map(|_| tokio::spawn(Hub::open(keyed(folder.path()))));
    let mut planted = 0;
    for opening in opening.collect::<Vec<_>>() {
        planted += opening.await.expect("joined").expect("open").database().planted_files().len();
    }
    assert_eq!((planted, list(&dir).expect("listed").len()), (1, 1));
}
