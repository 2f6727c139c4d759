use std::fs::OpenOptions;
use std::path::Path;

use switchboard_core::{Door, MessageId};

use crate::store::side_files::LOG;
use crate::test_hub::{draft, name};
use crate::{Hub, HubConfig, HubKey, Registration};

async fn open(folder: &Path) -> Hub {
    let key = HubKey::load_or_create(&folder.join("key")).expect("a key");
    let hub = Hub::open(HubConfig { key: Some(key), ..HubConfig::new(folder) }).await.expect("open");
    for agent in ["claude", "codex"] {
        hub.register(Registration::mailbox(name(agent))).await.expect("registered");
    }
    hub
}

async fn send(hub: &Hub, body: &str) -> (MessageId, i64) {
    let accepted = hub.submit(draft(hub, "claude", "codex", body)).await.expect("accepted");
    (accepted.id, hub.message(accepted.id).await.expect("read").expect("there").seq)
}

fn length(folder: &Path) -> u64 {
    std::fs::metadata(folder.join(LOG)).expect("there").len()
}

fn cut(folder: &Path, to: u64) {
    OpenOptions::new().write(true).open(folder.join(LOG)).expect("opens").set_len(to).expect("cut");
}

/// Messages that were accepted after a cut are kept, under numbers that no reader has seen.
async fn recovers_from_cut(share: impl Fn(u64) -> u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let (_, last) = send(&hub, "before").await;
    cut(folder.path(), share(length(folder.path())));
    hub.register(Registration::mailbox(name("codex"))).await.expect("the first write recovers");
    assert!(hub.take_recovery() && !hub.take_recovery());
    assert!(hub.needs_rebuild().await.expect("read"));
    for agent in ["claude", "codex"] {
        hub.register(Registration::mailbox(name(agent))).await.expect("registered");
    }
    let (kept, seq) = send(&hub, "after").await;
    assert!(seq > last, "{seq} follows {last}");
    hub.shut_down().await;
    let hub = open(folder.path()).await;
    assert!(hub.message(kept).await.expect("read").is_some());
    assert_eq!(hub.health().await.expect("looked").complaints, Vec::<String>::new());
}

#[tokio::test]
async fn log_cut_to_nothing_is_recovered() {
    recovers_from_cut(|_| 0).await;
}

#[tokio::test]
async fn log_cut_within_last_frame_is_recovered() {
    recovers_from_cut(|len| len - 100).await;
}

#[tokio::test]
async fn log_cut_in_the_middle_is_recovered() {
    recovers_from_cut(|len| len / 2).await;
}

/// The commit gives the log its length back, with a hole in it.
async fn recovers_from_cut_during_transaction(share: impl Fn(u64) -> u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    send(&hub, "before").await;
    let (place, to) = (folder.path().to_owned(), share(length(folder.path())));
    let cut_off = hub.write(move |tx| {
        cut(&place, to);
        tx.db.execute("INSERT INTO meta (key, value) VALUES ('behind the hole', '')", [])?;
        Ok(())
    });
    assert!(matches!(cut_off.await, Err(crate::HubError::Unsure { .. })));
    for agent in ["claude", "codex"] {
        hub.register(Registration::mailbox(name(agent))).await.expect("registered");
    }
    assert!(hub.take_recovery());
    let (kept, _) = send(&hub, "after").await;
    hub.shut_down().await;
    let hub = open(folder.path()).await;
    assert!(hub.message(kept).await.expect("read").is_some());
    assert_eq!(hub.health().await.expect("looked").complaints, Vec::<String>::new());
}

#[tokio::test]
async fn log_cut_to_nothing_during_transaction_is_recovered() {
    recovers_from_cut_during_transaction(|_| 0).await;
}

#[tokio::test]
async fn log_cut_in_the_middle_during_transaction_is_recovered() {
    recovers_from_cut_during_transaction(|len| len / 2).await;
}

#[tokio::test]
async fn idle_hub_notices_cut_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let _door = hub.open_door(Door::Workspace).await.expect("opened");
    send(&hub, "before").await;
    cut(folder.path(), 0);
    while !hub.take_recovery() {
        tokio::task::yield_now().await;
    }
    assert!(hub.needs_rebuild().await.expect("read"));
}

#[tokio::test]
async fn log_that_was_written_back_is_not_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    send(&hub, "before").await;
    let other = rusqlite::Connection::open(folder.path().join("hub.db")).expect("opens");
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(other);
    assert_eq!(length(folder.path()), 0);
    send(&hub, "after").await;
    assert!(!hub.take_recovery());
}

#[tokio::test]
async fn log_in_use_by_others_is_recovered_when_they_are_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let other = open(folder.path()).await;
    send(&hub, "before").await;
    cut(folder.path(), 0);
    let refused = hub.submit(draft(&hub, "claude", "codex", "meanwhile")).await;
    assert!(matches!(&refused, Err(crate::HubError::DamagedInUse { .. })), "{refused:?}");
    other.shut_down().await;
    drop(other);
    hub.register(Registration::mailbox(name("codex"))).await.expect("recovered");
    assert!(hub.take_recovery());
}
