use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use switchboard_core::{Door, MessageId};

use crate::store::side_files::{INDEX, LOG};
use crate::test_hub::{draft, name};
use crate::{Hub, HubConfig, HubKey, Registration};

async fn open(folder: &Path) -> Hub {
    let key = HubKey::load_or_create(&folder.join("key")).expect("a key");
    let hub = Hub::open(HubConfig { key: Some(key), ..HubConfig::new(folder) }).await.expect("open");
    for agent in ["claude", "codex"] {
        hub.agents().register(Registration::mailbox(name(agent))).await.expect("registered");
    }
    hub
}

async fn send(hub: &Hub, body: &str) -> (MessageId, i64) {
    let accepted = hub.submit(draft(hub, "claude", "codex", body)).await.expect("accepted");
    (accepted.id, hub.journal().message(accepted.id).await.expect("read").expect("there").seq)
}

fn length(folder: &Path) -> u64 {
    std::fs::metadata(folder.join(LOG)).expect("there").len()
}

/// Overwrites a part of the log with garbage.
fn overwrite(folder: &Path, from: u64, length: u64) {
    let modified = || std::fs::metadata(folder.join(LOG)).expect("there").modified().expect("known");
    let garbage: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
    let log = OpenOptions::new().write(true).open(folder.join(LOG)).expect("opens");
    let before = modified();
    // The file system may count time in steps of some milliseconds.
    while modified() == before {
        log.write_all_at(&garbage, from).expect("overwritten");
    }
}

fn cut(folder: &Path, to: u64) {
    OpenOptions::new().write(true).open(folder.join(LOG)).expect("opens").set_len(to).expect("cut");
}

/// Messages that were accepted after a truncation are retained, under numbers that no reader has seen.
async fn recovers_from_cut(share: impl Fn(u64) -> u64) {
    recovers_from(|folder| cut(folder, share(length(folder)))).await;
}

async fn recovers_from(damage: impl Fn(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let (_, last) = send(&hub, "before").await;
    damage(folder.path());
    hub.agents().register(Registration::mailbox(name("codex"))).await.expect("the first write recovers");
    assert!(hub.database().consume_recovery() && !hub.database().consume_recovery());
    assert!(hub.database().needs_rebuild().await.expect("read"));
    for agent in ["claude", "codex"] {
        hub.agents().register(Registration::mailbox(name(agent))).await.expect("registered");
    }
    let (kept, seq) = send(&hub, "after").await;
    assert!(seq > last, "{seq} follows {last}");
    hub.shut_down().await;
    let hub = open(folder.path()).await;
    assert!(hub.journal().message(kept).await.expect("read").is_some());
    assert_eq!(hub.database().health().await.expect("looked").complaints, Vec::<String>::new());
}

#[tokio::test]
async fn log_truncated_to_nothing_is_recovered() {
    recovers_from_cut(|_| 0).await;
}

#[tokio::test]
async fn log_truncated_within_last_frame_is_recovered() {
    recovers_from_cut(|len| len - 100).await;
}

#[tokio::test]
async fn log_truncated_in_the_middle_is_recovered() {
    recovers_from_cut(|len| len / 2).await;
}

#[tokio::test]
async fn log_of_garbage_is_recovered() {
    recovers_from(|folder| overwrite(folder, 0, length(folder))).await;
}

#[tokio::test]
async fn log_with_garbage_in_tail_half_is_recovered() {
    recovers_from(|folder| overwrite(folder, length(folder) / 2, length(folder) / 2)).await;
}

#[tokio::test]
async fn log_with_garbage_header_is_recovered() {
    recovers_from(|folder| overwrite(folder, 0, 32)).await;
}

/// Neither the header nor the last frame of the log shows the damage.
#[tokio::test]
async fn log_with_garbage_in_a_page_is_recovered() {
    recovers_from(|folder| overwrite(folder, 32 + 24 + 100, 1_000)).await;
}

#[tokio::test]
async fn log_overwritten_before_shutdown_is_recovered_by_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    send(&hub, "before").await;
    hub.database().mark_rebuilt().await.expect("noted");
    assert!(!hub.database().needs_rebuild().await.expect("read"));
    // The frames with it are in the database.
    let other = rusqlite::Connection::open(folder.path().join("hub.db")).expect("opens");
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(other);
    send(&hub, "lost").await;
    overwrite(folder.path(), length(folder.path()) / 2, length(folder.path()) / 2);
    hub.shut_down().await;
    drop(hub);
    let hub = open(folder.path()).await;
    assert!(hub.database().needs_rebuild().await.expect("read"));
}

#[tokio::test]
async fn garbage_after_last_frame_does_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let (before, _) = send(&hub, "before").await;
    overwrite(folder.path(), length(folder.path()), 10_000);
    let (after, _) = send(&hub, "after").await;
    hub.shut_down().await;
    let hub = open(folder.path()).await;
    for id in [before, after] {
        assert!(hub.journal().message(id).await.expect("read").is_some());
    }
    assert!(!hub.database().consume_recovery());
}

#[tokio::test]
async fn unknown_agent_is_temporary_until_rebuilt() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    send(&hub, "before").await;
    cut(folder.path(), 0);
    let refused = hub.submit(draft(&hub, "claude", "codex", "meanwhile")).await;
    assert!(refused.as_ref().is_err_and(crate::HubError::is_temporary), "{refused:?}");
    hub.database().wait_for_recovery().await;
    hub.database().mark_rebuilt().await.expect("noted");
    let unknown = hub.submit(draft(&hub, "claude", "codex", "after")).await;
    assert!(matches!(unknown, Err(crate::HubError::Unresolved(_))), "{unknown:?}");
}

#[tokio::test]
async fn removed_index_is_rebuilt() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let (before, _) = send(&hub, "before").await;
    std::fs::remove_file(folder.path().join(INDEX)).expect("removed");
    let (after, _) = send(&hub, "after").await;
    let other = open(folder.path()).await;
    for id in [before, after] {
        assert!(other.journal().message(id).await.expect("read").is_some());
    }
}

/// The commit restores the length of the log, with a hole in it.
async fn recovers_from_cut_during_transaction(share: impl Fn(u64) -> u64 + Send + 'static) {
    recovers_from_damage_during_transaction(move |folder| cut(folder, share(length(folder)))).await;
}

async fn recovers_from_damage_during_transaction(damage: impl Fn(&Path) + Send + 'static) {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    send(&hub, "before").await;
    let place = folder.path().to_owned();
    let behind = hub.write(move |tx| {
        damage(&place);
        tx.db.execute("INSERT INTO meta (key, value) VALUES ('behind the hole', '')", [])?;
        Ok(())
    });
    assert!(matches!(behind.await, Err(crate::HubError::OutcomeUnknown { .. })));
    for agent in ["claude", "codex"] {
        hub.agents().register(Registration::mailbox(name(agent))).await.expect("registered");
    }
    assert!(hub.database().consume_recovery());
    let (kept, _) = send(&hub, "after").await;
    hub.shut_down().await;
    let hub = open(folder.path()).await;
    assert!(hub.journal().message(kept).await.expect("read").is_some());
    assert_eq!(hub.database().health().await.expect("looked").complaints, Vec::<String>::new());
}

#[tokio::test]
async fn log_truncated_to_nothing_during_transaction_is_recovered() {
    recovers_from_cut_during_transaction(|_| 0).await;
}

#[tokio::test]
async fn log_truncated_midway_during_transaction_is_recovered() {
    recovers_from_cut_during_transaction(|len| len / 2).await;
}

#[tokio::test]
async fn header_overwritten_during_transaction_is_recovered() {
    recovers_from_damage_during_transaction(|folder| overwrite(folder, 0, 32)).await;
}

#[tokio::test]
async fn last_frame_overwritten_during_transaction_is_recovered() {
    recovers_from_damage_during_transaction(|folder| {
        // Pages of the database have 4 KiB.
        overwrite(folder, length(folder) - 4096 - 24, 24);
    })
    .await;
}

#[tokio::test]
async fn idle_hub_notices_truncated_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let _door = hub.deliveries().open_door(Door::Workspace).await.expect("opened");
    send(&hub, "before").await;
    cut(folder.path(), 0);
    while !hub.database().consume_recovery() {
        tokio::task::yield_now().await;
    }
    assert!(hub.database().needs_rebuild().await.expect("read"));
}

#[tokio::test]
async fn checkpointed_log_is_not_truncated() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    send(&hub, "before").await;
    let other = rusqlite::Connection::open(folder.path().join("hub.db")).expect("opens");
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(other);
    assert_eq!(length(folder.path()), 0);
    send(&hub, "after").await;
    assert!(!hub.database().consume_recovery());
}

#[tokio::test]
async fn log_in_use_is_recovered_after_others_close() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = open(folder.path()).await;
    let other = open(folder.path()).await;
    send(&hub, "before").await;
    cut(folder.path(), 0);
    let refused = hub.submit(draft(&hub, "claude", "codex", "meanwhile")).await;
    assert!(matches!(&refused, Err(crate::HubError::DamagedInUse { .. })), "{refused:?}");
    other.shut_down().await;
    drop(other);
    hub.agents().register(Registration::mailbox(name("codex"))).await.expect("recovered");
    assert!(hub.database().consume_recovery());
}
