use super::*;
use crate::config::{Config, Retention};
use crate::test_workspace::{TestWorkspace, agent, archive_file, inbox_file, letter};
use crate::{Letter, ids};

const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn workspace(retention: Retention) -> TestWorkspace {
    TestWorkspace::with(Config { retention, ..Config::default() }, &["codex"]).await
}

#[tokio::test]
async fn without_settings_everything_is_kept() {
    let t = workspace(Retention::default()).await;
    let id = t.send(letter("claude", "codex", "old")).await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    t.clock.advance(DAY * 3650);
    t.workspace.keep_house().await.unwrap();
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (1, 2));
    assert_eq!(t.journal().await, ["old"]);
}

#[tokio::test]
async fn f1_a_receipt_that_a_killed_process_did_not_write_is_written_once() {
    let t = workspace(Retention::default()).await;
    let id = t.send(letter("claude", "codex", "told late")).await;
    let receipt = format!("outbox/claude/{}.receipt.json", ids::to_native(id));
    let remove = || std::fs::remove_file(t.path(&receipt)).unwrap();
    remove();
    t.workspace.keep_house().await.unwrap();
    assert!(!t.path(&receipt).exists(), "whoever took it in may be about to write it");
    t.clock.advance(SignedDuration::from_mins(1));
    t.workspace.keep_house().await.unwrap();
    assert_eq!(t.json(&receipt)["status"], "delivered");
    remove();
    t.workspace.keep_house().await.unwrap();
    assert!(!t.path(&receipt).exists(), "what was once there and is gone is not our business");
}

#[tokio::test]
async fn only_what_is_older_than_the_settings_is_removed() {
    let retention = Retention { archive: Some(DAY), receipts: Some(DAY * 3), journal: None };
    let t = workspace(retention).await;
    let done = t.send(letter("claude", "codex", "done")).await;
    let waiting = t.send(letter("claude", "codex", "waiting")).await;
    t.workspace.acknowledge(&agent("codex"), done, None).await.unwrap();
    // What counts is since when it lies there, not when it was written.
    t.set_age(&archive_file("codex", done), DAY * 365);
    t.workspace.keep_house().await.unwrap();
    assert_eq!(t.names("archive/codex").len(), 1);
    t.clock.advance(DAY * 2);
    t.write("archive/codex/young.json", "");
    t.set_age("archive/codex/young.json", SignedDuration::from_hours(1));
    t.write("archive/codex/folder/x", "");
    t.workspace.keep_house().await.unwrap();
    assert_eq!(t.names("archive/codex"), ["folder", "young.json"]);
    assert_eq!(t.names("outbox/claude").len(), 3, "receipts have their own setting");
    t.clock.advance(DAY * 2);
    t.workspace.keep_house().await.unwrap();
    assert_eq!(t.names("outbox/claude"), [""; 0]);
    assert_eq!(
        t.names("inbox/codex"),
        [format!("{}.json", ids::to_native(waiting))],
        "mail is never too old"
    );
    assert_eq!(t.journal().await, ["done", "waiting"]);
}

#[tokio::test]
async fn f27_the_journal_lets_go_only_of_what_everybody_is_done_with() {
    let t = workspace(Retention { journal: Some(DAY), ..Retention::default() }).await;
    let done = t.send(letter("claude", "codex", "done")).await;
    t.send(letter("claude", "codex", "waiting")).await;
    t.workspace.acknowledge(&agent("codex"), done, None).await.unwrap();
    t.workspace.keep_house().await.unwrap();
    assert_eq!(t.journal().await, ["done", "waiting"]);
    t.clock.advance(DAY * 2);
    t.workspace.keep_house().await.unwrap();
    assert_eq!(
        (t.journal().await, t.waiting("codex").await),
        (vec!["waiting".to_owned()], vec!["waiting".to_owned()])
    );
    // The archive stays, and a copy of it that comes back into the mailbox is the business of the person.
    assert!(t.path(&archive_file("codex", done)).exists());
}

#[tokio::test]
async fn what_the_hub_let_expire_by_itself_is_archived_with_a_receipt_too() {
    let t = workspace(Retention::default()).await;
    let expires_at = Some(t.clock.now() + SignedDuration::from_mins(1));
    let id = t.send(Letter { expires_at, ..letter("claude", "codex", "soon over") }).await;
    t.clock.advance(SignedDuration::from_mins(2));
    // As the hub's own tick does, or another process that died right after it.
    assert_eq!(t.workspace.hub().expire_due().await.unwrap().len(), 1);
    assert!(t.path(&inbox_file("codex", id)).exists());
    t.workspace.keep_house().await.unwrap();
    assert!(t.path(&archive_file("codex", id)).exists());
    let receipt = format!("outbox/claude/{}.expired.receipt.json", ids::to_native(id));
    assert_eq!(t.json(&receipt)["status"], "expired");
}

#[tokio::test]
async fn files_of_killed_writers_are_cleared_and_those_of_living_ones_left() {
    let t = workspace(Retention::default()).await;
    for (below, age) in [("inbox/codex", 2), ("archive/codex", 2), ("outbox/claude", 2), ("inbox/codex", 0)] {
        let below = format!("{below}/.tmp-1-elsewhere-{age}");
        t.write(&below, "half");
        t.set_age(&below, SignedDuration::from_hours(age));
    }
    t.workspace.keep_house().await.unwrap();
    assert_eq!(t.names("inbox/codex"), [".tmp-1-elsewhere-0"]);
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (0, 0));
}

#[tokio::test]
async fn trouble_with_one_archive_stops_nothing_else() {
    let retention = Retention { archive: Some(DAY), ..Retention::default() };
    let t = workspace(retention).await;
    t.workspace.register(switchboard_hub::Registration::mailbox("gemini".parse().unwrap())).await.unwrap();
    let expires_at = Some(t.clock.now() + SignedDuration::from_mins(1));
    let blocked = t.send(Letter { expires_at, ..letter("claude", "codex", "blocked") }).await;
    let free = t.send(Letter { expires_at, ..letter("claude", "gemini", "free") }).await;
    t.write("archive/codex", "in the way");
    t.clock.advance(SignedDuration::from_mins(2));
    t.workspace.keep_house().await.unwrap();
    assert!(t.path(&archive_file("gemini", free)).exists());
    assert!(t.path(&inbox_file("codex", blocked)).exists());
    assert_eq!((t.states(blocked).await, t.states(free).await), (vec!["expired"], vec!["expired"]));
    std::fs::remove_file(t.path("archive/codex")).unwrap();
    t.workspace.keep_house().await.unwrap();
    assert!(t.path(&archive_file("codex", blocked)).exists());
}

#[tokio::test]
async fn one_senders_folder_in_trouble_does_not_stop_the_housekeeping() {
    let t = workspace(Retention::default()).await;
    let id = t.send(letter("claude", "codex", "told")).await;
    let other = t.send(letter("gemini", "codex", "told as well")).await;
    for who in ["claude", "gemini"] {
        std::fs::remove_dir_all(t.path(&format!("outbox/{who}"))).unwrap();
    }
    std::os::unix::fs::symlink("/tmp", t.path("outbox/claude")).unwrap();
    t.clock.advance(SignedDuration::from_mins(1));
    t.workspace.keep_house().await.unwrap();
    let receipt = |id| format!("{}.receipt.json", ids::to_native(id));
    assert_eq!(t.names("outbox/gemini"), [receipt(other)]);
    assert!(!std::path::Path::new("/tmp").join(receipt(id)).exists());
    let findings = crate::inspect::inspect(&t.workspace).await.unwrap();
    let [crate::Finding::Unusable { path, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(path, "outbox/claude");
}

#[tokio::test]
async fn tidying_up_removes_nothing_however_old_it_is() {
    let t = workspace(Retention { archive: Some(DAY), receipts: Some(DAY), journal: Some(DAY) }).await;
    let id = t.send(letter("claude", "codex", "old")).await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    t.clock.advance(DAY * 10);
    t.workspace.tidy_up().await.unwrap();
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (1, 2));
    t.workspace.keep_house().await.unwrap();
    assert_eq!((t.names("archive/codex").len(), t.names("outbox/claude").len()), (0, 0));
}
