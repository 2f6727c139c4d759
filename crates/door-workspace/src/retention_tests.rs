use super::*;
use crate::config::{Config, Retention};
use crate::test_workspace::{TestWorkspace, agent, archive_file, outgoing};

const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn workspace(retention: Retention) -> TestWorkspace {
    TestWorkspace::with(Config { retention, ..Config::default() }, &["codex"]).await
}

#[tokio::test]
async fn unlimited_retention_removes_nothing() {
    let t = workspace(Retention::FOR_EVER).await;
    let id = t.send(outgoing("claude", "codex", "old")).await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    t.clock.advance(DAY * 3650);
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (1, 1));
    assert_eq!(t.journal().await, ["old"]);
}

#[tokio::test]
async fn default_retention_is_30_and_90_days() {
    let t = workspace(Retention::default()).await;
    let done = t.send(outgoing("claude", "codex", "done")).await;
    t.send(outgoing("claude", "codex", "waiting")).await;
    t.workspace.acknowledge(&agent("codex"), done, None).await.unwrap();
    let left = async || {
        t.workspace.run_housekeeping().await.unwrap();
        (t.names("archive/codex").len(), t.names("outbox/claude").len(), t.journal().await.len())
    };
    t.clock.advance(DAY * 29);
    assert_eq!(left().await, (1, 2, 2));
    t.clock.advance(DAY * 2);
    assert_eq!(left().await, (0, 1, 2), "what belongs to a message that waits stays");
    t.clock.advance(DAY * 60);
    assert_eq!(left().await, (0, 1, 1));
    assert_eq!(t.waiting("codex").await, ["waiting"]);
    assert_eq!(
        t.workspace.hub().journal().audit(None).await.unwrap().bad,
        0,
        "the chain goes on past the gap"
    );
}

#[tokio::test]
async fn only_files_beyond_retention_are_removed() {
    let retention = Retention { archive: Some(DAY), receipts: Some(DAY * 3), journal: None };
    let t = workspace(retention).await;
    let done = t.send(outgoing("claude", "codex", "done")).await;
    t.workspace.acknowledge(&agent("codex"), done, None).await.unwrap();
    // The age counts from when the file was put there, not from when it was written.
    t.set_age(&archive_file("codex", done), DAY * 365);
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.names("archive/codex").len(), 1);
    t.write("archive/codex/theirs.json", "");
    t.set_age("archive/codex/theirs.json", DAY * 365);
    t.clock.advance(DAY * 2);
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.names("archive/codex"), [""; 0], "what others put there goes as well");
    assert_eq!(t.names("outbox/claude").len(), 1, "receipts have their own setting");
    t.clock.advance(DAY * 2);
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.names("outbox/claude"), [""; 0]);
    assert_eq!(t.journal().await, ["done"]);
}

#[tokio::test]
async fn old_files_without_journal_entry_are_removed() {
    let retention = Retention { archive: Some(DAY * 10), receipts: Some(DAY * 10), journal: Some(DAY) };
    let t = workspace(retention).await;
    let done = t.send(outgoing("claude", "codex", "done")).await;
    t.send(outgoing("claude", "codex", "last")).await;
    t.workspace.acknowledge(&agent("codex"), done, None).await.unwrap();
    let left = async || {
        t.workspace.run_housekeeping().await.unwrap();
        (t.journal().await.len(), t.names("archive/codex").len(), t.names("outbox/claude").len())
    };
    t.clock.advance(DAY * 2);
    assert_eq!(left().await, (1, 1, 2));
    t.clock.advance(DAY * 10);
    assert_eq!(left().await, (1, 0, 1), "nothing tells of them any more but their age");
}

#[tokio::test]
async fn commands_do_one_small_round_per_minute() {
    let t = workspace(Retention { archive: Some(DAY), ..Retention::FOR_EVER }).await;
    for number in 0..=SMALL_ROUND {
        let id = t.send(outgoing("claude", "codex", &number.to_string())).await;
        t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    }
    t.clock.advance(DAY * 2);
    let left = async || {
        t.workspace.retention_after_command().await;
        t.names("archive/codex").len()
    };
    assert_eq!(left().await, 1);
    assert_eq!(left().await, 1, "one round a minute");
    t.clock.advance(ROUND_EVERY);
    assert_eq!(left().await, 0);
    t.clock.advance(ROUND_EVERY);
    assert_eq!(left().await, 0);
    assert!(!t.workspace.is_run_due().await.unwrap(), "the next pass begins tomorrow");
}

#[tokio::test]
async fn only_ended_journal_entries_are_removed() {
    let t = workspace(Retention { journal: Some(DAY), ..Retention::FOR_EVER }).await;
    let done = t.send(outgoing("claude", "codex", "done")).await;
    t.send(outgoing("claude", "codex", "waiting")).await;
    t.workspace.acknowledge(&agent("codex"), done, None).await.unwrap();
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.journal().await, ["done", "waiting"]);
    t.clock.advance(DAY * 2);
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(
        (t.journal().await, t.waiting("codex").await),
        (vec!["waiting".to_owned()], vec!["waiting".to_owned()])
    );
    // The archive stays, and a copy of it in the mailbox is left to the person.
    assert!(t.path(&archive_file("codex", done)).exists());
}

#[tokio::test]
async fn maintenance_removes_no_old_mail() {
    let t = workspace(Retention { archive: Some(DAY), receipts: Some(DAY), journal: Some(DAY) }).await;
    let id = t.send(outgoing("claude", "codex", "old")).await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    t.clock.advance(DAY * 10);
    t.workspace.run_maintenance().await.unwrap();
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (1, 1));
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (0, 0));
}
