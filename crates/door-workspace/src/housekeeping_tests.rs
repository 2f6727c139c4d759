#![expect(clippy::disallowed_methods, reason = "the tests change files as other programs do")]

use super::*;
use crate::config::{Config, Retention};
use crate::test_workspace::{TestWorkspace, archive_file, inbox_file, outgoing};
use crate::{OutgoingMessage, ids};

const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn workspace(retention: Retention) -> TestWorkspace {
    TestWorkspace::with(Config { retention, ..Config::default() }, &["codex"]).await
}

#[tokio::test]
async fn missing_receipt_is_written_once() {
    let t = workspace(Retention::FOR_EVER).await;
    let id = t.send(outgoing("claude", "codex", "told late")).await;
    let receipt = format!("outbox/claude/{}.receipt.json", ids::to_native(id));
    let remove = || std::fs::remove_file(t.path(&receipt)).unwrap();
    remove();
    t.workspace.run_housekeeping().await.unwrap();
    assert!(!t.path(&receipt).exists(), "the process that ingested it may be about to write it");
    t.clock.advance(SignedDuration::from_mins(1));
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.json(&receipt)["status"], "delivered");
    remove();
    t.workspace.run_housekeeping().await.unwrap();
    assert!(!t.path(&receipt).exists(), "what was once there and is gone is not our business");
}

#[tokio::test]
async fn expired_message_is_archived_with_a_receipt() {
    let t = workspace(Retention::FOR_EVER).await;
    let expires_at = Some(t.clock.now() + SignedDuration::from_mins(1));
    let id = t.send(OutgoingMessage { expires_at, ..outgoing("claude", "codex", "soon over") }).await;
    t.clock.advance(SignedDuration::from_mins(2));
    // As the hub's own timer does, or another process that dies right after it.
    assert_eq!(t.workspace.hub().deliveries().expire_due().await.unwrap().len(), 1);
    assert!(t.path(&inbox_file("codex", id)).exists());
    t.workspace.run_housekeeping().await.unwrap();
    assert!(t.path(&archive_file("codex", id)).exists());
    let receipt = format!("outbox/claude/{}.receipt.json", ids::to_native(id));
    assert_eq!(t.json(&receipt)["status"], "expired");
}

#[tokio::test]
async fn only_stale_partial_files_are_removed() {
    let t = workspace(Retention::FOR_EVER).await;
    for (below, age) in [("inbox/codex", 2), ("archive/codex", 2), ("outbox/claude", 2), ("inbox/codex", 0)] {
        let below = format!("{below}/.tmp-1-elsewhere-{age}");
        t.write(&below, "half");
        t.set_age(&below, SignedDuration::from_hours(age));
    }
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.names("inbox/codex"), [".tmp-1-elsewhere-0"]);
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (0, 0));
}

#[tokio::test]
async fn broken_archive_does_not_stop_housekeeping() {
    let retention = Retention { archive: Some(DAY), ..Retention::FOR_EVER };
    let t = workspace(retention).await;
    t.workspace.register(switchboard_hub::Registration::mailbox("gemini".parse().unwrap())).await.unwrap();
    let expires_at = Some(t.clock.now() + SignedDuration::from_mins(1));
    let blocked = t.send(OutgoingMessage { expires_at, ..outgoing("claude", "codex", "blocked") }).await;
    let free = t.send(OutgoingMessage { expires_at, ..outgoing("claude", "gemini", "free") }).await;
    t.write("archive/codex", "in the way");
    t.clock.advance(SignedDuration::from_mins(2));
    t.workspace.run_housekeeping().await.unwrap();
    assert!(t.path(&archive_file("gemini", free)).exists());
    assert!(t.path(&inbox_file("codex", blocked)).exists());
    assert_eq!((t.states(blocked).await, t.states(free).await), (vec!["expired"], vec!["expired"]));
    std::fs::remove_file(t.path("archive/codex")).unwrap();
    t.workspace.run_housekeeping().await.unwrap();
    assert!(t.path(&archive_file("codex", blocked)).exists());
}

#[tokio::test]
async fn broken_outbox_does_not_stop_housekeeping() {
    let t = workspace(Retention::FOR_EVER).await;
    let id = t.send(outgoing("claude", "codex", "told")).await;
    let other = t.send(outgoing("gemini", "codex", "told as well")).await;
    for who in ["claude", "gemini"] {
        std::fs::remove_dir_all(t.path(&format!("outbox/{who}"))).unwrap();
    }
    std::os::unix::fs::symlink("/tmp", t.path("outbox/claude")).unwrap();
    t.clock.advance(SignedDuration::from_mins(1));
    t.workspace.run_housekeeping().await.unwrap();
    let receipt = |id| format!("{}.receipt.json", ids::to_native(id));
    assert_eq!(t.names("outbox/gemini"), [receipt(other)]);
    assert!(!std::path::Path::new("/tmp").join(receipt(id)).exists());
    let findings = crate::inspect::inspect(&t.workspace).await.unwrap();
    let [crate::Finding::Unusable { path, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(path, "outbox/claude");
}

#[tokio::test]
async fn mailboxes_are_compared_once_a_day() {
    let t = workspace(Retention::FOR_EVER).await;
    let id = t.send(outgoing("claude", "codex", "waiting")).await;
    t.workspace.scan().await.unwrap();
    t.workspace.run_housekeeping().await.unwrap();
    // A file changed in place does not change its folder's fingerprint.
    std::fs::write(t.path(&inbox_file("codex", id)), "").unwrap();
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.bytes(&inbox_file("codex", id)), b"", "the comparison of today is done");
    t.clock.advance(DAY);
    t.workspace.run_housekeeping().await.unwrap();
    assert!(!t.bytes(&inbox_file("codex", id)).is_empty());
}

#[tokio::test]
async fn housekeeping_is_leased_to_one_process() {
    let t = workspace(Retention::FOR_EVER).await;
    let lease = t.workspace.housekeeping_lease().await.unwrap();
    assert!(lease.is_some());
    let expires_at = Some(t.clock.now() + SignedDuration::from_mins(1));
    let id = t.send(OutgoingMessage { expires_at, ..outgoing("claude", "codex", "soon over") }).await;
    t.clock.advance(SignedDuration::from_mins(2));
    t.workspace.run_housekeeping().await.unwrap();
    assert!(t.path(&inbox_file("codex", id)).exists(), "another process has the lease");
    drop(lease);
    t.workspace.run_housekeeping().await.unwrap();
    assert!(t.path(&archive_file("codex", id)).exists());
}

#[tokio::test]
async fn partial_files_are_removed_in_every_round() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.workspace.run_housekeeping().await.unwrap();
    // Created after the daily comparison.
    t.write(".tmp-1-elsewhere-0", "half");
    t.set_age(".tmp-1-elsewhere-0", SignedDuration::from_hours(2));
    t.workspace.run_housekeeping().await.unwrap();
    assert!(!t.names("").iter().any(|name| name.starts_with(".tmp-")), "{:?}", t.names(""));
}
