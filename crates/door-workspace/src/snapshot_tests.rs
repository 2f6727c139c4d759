use jiff::SignedDuration;
use switchboard_hub::Registration;

use crate::test_workspace::{TestWorkspace, agent, message, name, outgoing};

#[tokio::test]
async fn snapshot_shows_only_earlier_changes() {
    let t = TestWorkspace::new(&["codex"]).await;
    let other = t.open_another().await;
    let before = t.workspace.snapshot().await.unwrap();
    other
        .register(Registration { role: Some("reviewer".into()), ..Registration::mailbox(name("claude")) })
        .await
        .unwrap();
    assert!(before.directory.agent(&agent("claude")).is_none());
    assert!(before.recipient("reviewer").is_err());
    let after = t.workspace.snapshot().await.unwrap();
    assert_eq!(after.recipient("reviewer").unwrap(), agent("claude").into());
    other.rename(name("claude"), name("opus")).await.unwrap();
    let renamed = t.workspace.snapshot().await.unwrap();
    assert_eq!(renamed.current_name(Some(&name("claude"))), Some(name("opus")));
    assert_eq!(after.current_name(Some(&name("claude"))), Some(name("claude")));
    other.close().await;
}

/// Returns the bodies in a snapshot's inbox, and whether the folder is unchanged since its last complete scan.
async fn inbox(t: &TestWorkspace) -> (Vec<String>, bool) {
    // A folder that has just changed may change again without a new timestamp.
    t.clock.advance(SignedDuration::from_mins(1));
    let now = t.workspace.snapshot_with_inbox(&agent("codex")).await.unwrap();
    let inbox = now.mailbox.unwrap().inbox.unwrap();
    let bodies = inbox.page.items.into_iter().map(|mail| mail.stored.message.body).collect();
    (bodies, t.workspace.is_unchanged(&agent("codex"), &inbox.last_scan).await.unwrap())
}

#[tokio::test]
async fn inbox_is_unchanged_until_its_folder_changes() {
    let t = TestWorkspace::new(&["codex"]).await;
    let scan = async || t.workspace.scan_mailbox(&agent("codex")).await.unwrap();
    let bodies = |bodies: &[&str]| bodies.iter().map(|body| (*body).to_owned()).collect::<Vec<_>>();
    assert_eq!(inbox(&t).await, (vec![], false), "no process has listed it yet");
    scan().await;
    assert_eq!(inbox(&t).await, (vec![], true));
    t.send(outgoing("claude", "codex", "sent")).await;
    assert_eq!(inbox(&t).await, (bodies(&["sent"]), false));
    scan().await;
    assert_eq!(inbox(&t).await, (bodies(&["sent"]), true));
    t.put("codex", &message("msg_1_a", "claude", "codex", "dropped"));
    assert!(!inbox(&t).await.1, "a file was dropped");
    assert_eq!(scan().await.ingested, 1);
    assert_eq!(inbox(&t).await, (bodies(&["sent", "dropped"]), true));
    t.write("inbox/codex/msg_2_b.json", "{");
    t.clock.advance(SignedDuration::from_mins(1));
    scan().await;
    assert!(inbox(&t).await.1, "the refused file is as it was");
    t.put("codex", &message("msg_2_b", "claude", "codex", "completed in place"));
    assert!(!inbox(&t).await.1);
    std::fs::remove_dir_all(t.path("inbox")).unwrap();
    assert!(!inbox(&t).await.1, "the folder is gone");
}

#[tokio::test]
async fn large_inbox_is_omitted_from_snapshot() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.send(outgoing("claude", "codex", &"x".repeat(super::INBOX_BYTES + 1))).await;
    for (who, unseen) in [("codex", 1), ("CODEX", 1), ("nobody", 0)] {
        let mailbox = t.workspace.snapshot_with_inbox(&agent(who)).await.unwrap().mailbox.unwrap();
        assert_eq!((mailbox.unseen, mailbox.inbox.is_none()), (unseen, true), "{who}");
    }
}
