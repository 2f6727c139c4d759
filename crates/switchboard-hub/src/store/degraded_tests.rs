use std::path::Path;

use super::*;
use crate::test_hub::{draft, name};
use crate::{Hub, HubConfig, Registration};

async fn filled(folder: &Path, key: Option<HubKey>) -> Hub {
    let hub = Hub::open(HubConfig { key, ..HubConfig::new(folder) }).await.expect("open");
    for agent in ["claude", "codex"] {
        hub.agents().register(Registration::mailbox(name(agent))).await.expect("registered");
    }
    hub.submit(draft(&hub, "claude", "codex", "hello")).await.expect("accepted");
    hub
}

fn bodies(connection: &Connection) -> Vec<String> {
    let mut statement = connection.prepare("SELECT body FROM messages ORDER BY seq").expect("prepared");
    let rows = statement.query_map([], |row| row.get(0)).expect("read");
    rows.map(|body| body.expect("a text")).collect()
}

#[tokio::test]
async fn log_is_read_while_others_write_and_after_them() {
    // Characters that SQLite could read as a part of a URI.
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("50% a?b#c");
    std::fs::create_dir(&folder).expect("made");
    let key = HubKey::load_or_create(&folder.join("key")).expect("a key");
    let hub = filled(&folder, Some(key.clone())).await;
    let dir = Dir::open_root(&folder).expect("opens");
    let during = open_read_only(&dir, Some(&key)).expect("opened");
    assert_eq!(bodies(&during), ["hello"]);
    drop(during);
    hub.shut_down().await;
    let after = open_read_only(&dir, Some(&key)).expect("opened");
    assert_eq!(bodies(&after), ["hello"]);
    assert!(is_read_only(&after));
    assert!(after.execute("DELETE FROM messages", []).is_err());
}

#[tokio::test]
async fn database_without_log_is_readable() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), None).await.shut_down().await;
    let dir = Dir::open_root(folder.path()).expect("opens");
    assert_eq!(bodies(&open_read_only(&dir, None).expect("opened")), ["hello"]);
    assert!(!folder.path().join("hub.db-wal").exists());
}

#[tokio::test]
async fn foreign_database_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), None).await.shut_down().await;
    let key = HubKey::load_or_create(&folder.path().join("key")).expect("a key");
    let dir = Dir::open_root(folder.path()).expect("opens");
    let opened = open_read_only(&dir, Some(&key));
    assert!(matches!(&opened, Err(HubError::ForeignDatabase { .. })), "{opened:?}");
}
