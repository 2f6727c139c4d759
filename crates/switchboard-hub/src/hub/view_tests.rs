use switchboard_core::Door;

use crate::test_hub::{TestHub, agent_id, name};
use crate::{HubError, MailboxQuery, Part};

fn waiting(agent: &str) -> MailboxQuery {
    MailboxQuery { agent: agent_id(agent), after: 0, limit: 20, part: Part::Waiting }
}

#[tokio::test]
async fn view_shows_what_others_committed_before() {
    let test = TestHub::with(&["codex"]).await;
    let other = test.open_another().await;
    for count in 1..=3 {
        test.send("claude", "codex", "hello").await;
        test.deliver_all().await;
        let seen = other.view(|view| {
            let page = view.mailbox(&waiting("CODEX"), usize::MAX)?.expect("it fits");
            Ok((view.count(&agent_id("codex"), Part::Unseen, 100)?, page.items.len()))
        });
        assert_eq!(seen.await.unwrap(), (count, count));
    }
    test.hub.agents().rename(name("codex"), name("opus")).await.unwrap();
    let renamed =
        other.view(|view| Ok((view.directory().clone(), view.mailbox(&waiting("codex"), usize::MAX)?)));
    let (directory, page) = renamed.await.unwrap();
    assert!(directory.agent(&agent_id("opus")).is_some());
    assert_eq!(page.expect("it fits").items.len(), 3, "a former name leads to the mailbox");
    other.shut_down().await;
}

/// All reads of a view use one snapshot, even while another process writes.
#[tokio::test]
async fn view_reads_in_one_transaction() {
    let test = TestHub::with(&["codex"]).await;
    test.hub.notes(Door::Workspace).put("topic", "key".into(), Some("before".into())).await.unwrap();
    let database = test.database();
    let seen = test.hub.view(move |view| {
        let first = view.get_note(Door::Workspace, "topic", "key")?;
        let other = rusqlite::Connection::open(&database).unwrap();
        other.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        other.execute("UPDATE notes SET value = 'after'", []).unwrap();
        Ok((first, view.get_note(Door::Workspace, "topic", "key")?, view.notes(Door::Workspace, "topic")?))
    });
    let before = || "before".to_owned();
    assert_eq!(seen.await.unwrap(), (Some(before()), Some(before()), vec![("key".to_owned(), before())]));
    let after = test.hub.view(|view| view.get_note(Door::Workspace, "topic", "key"));
    assert_eq!(after.await.unwrap().as_deref(), Some("after"), "the transaction has ended");
}

#[tokio::test]
async fn view_leaves_large_pages_to_mailbox() {
    let test = TestHub::with(&["codex"]).await;
    test.send("claude", "codex", &"x".repeat(1000)).await;
    test.deliver_all().await;
    for (most, fits) in [(999, false), (1000, true)] {
        let page = test.hub.view(move |view| view.mailbox(&waiting("codex"), most)).await.unwrap();
        assert_eq!(page.is_some(), fits);
    }
}

#[tokio::test]
async fn view_that_fails_leaves_no_transaction_open() {
    let test = TestHub::with(&["codex"]).await;
    for _ in 0..3 {
        let failed: Result<(), HubError> = test
            .hub
            .view(|view| {
                view.notes(Door::Workspace, "topic")?;
                Err(HubError::Closed)
            })
            .await;
        assert!(matches!(failed, Err(HubError::Closed)));
        test.send("claude", "codex", "hello").await;
    }
    test.deliver_all().await;
    let count = test.hub.view(|view| view.count(&agent_id("codex"), Part::Unseen, 100)).await;
    assert_eq!(count.unwrap(), 3);
}
