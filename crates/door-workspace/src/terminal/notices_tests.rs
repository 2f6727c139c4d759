use switchboard_core::Kind;

use super::*;
use crate::test_workspace::{TestWorkspace, agent, name, outgoing};
use crate::workspace::OutgoingMessage;

#[test]
fn notice_counts_messages_and_names_senders() {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(agent);
    let table: [(&[&AgentId], bool, &str); 5] = [
        (&[&a], false, "1 new message from a"),
        (&[&a, &a], false, "2 new messages from a"),
        (&[&a, &b, &a], false, "3 new messages from a and b"),
        (&[&a, &b, &c, &d], false, "4 new messages from a, b, c and others"),
        (&[&a, &a], true, "2+ new messages from a and others"),
    ];
    for (senders, more, expected) in table {
        assert_eq!(notice(senders, more), format!("[switchboard] {expected}: run check_inbox"));
    }
}

#[tokio::test]
async fn one_notice_is_outstanding_until_read() {
    let test = TestWorkspace::new(&["codex", "claude", "gemini"]).await;
    test.send(outgoing("claude", "codex", "before")).await;
    let executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let mut notices = Notices::new(&executor);
    assert!(notices.next_notice().await.unwrap().is_none(), "what was there before is not new");
    let execute = Kind::parse(EXECUTE).unwrap();
    test.send(OutgoingMessage { kind: execute, ..outgoing("claude", "codex", "typed anyway") }).await;
    assert!(notices.next_notice().await.unwrap().is_none());
    let one = test.send(outgoing("claude", "codex", "one")).await;
    let two = test.send(outgoing("gemini", "codex", "two")).await;
    notices.wait().await.unwrap();
    drop(notices.next_notice().await.unwrap().unwrap());
    let notice = notices.next_notice().await.unwrap().expect("one that was not typed comes again");
    let text = notice.text.clone();
    notices.finish(notice).await.unwrap();
    assert_eq!(text, "[switchboard] 2 new messages from claude and gemini: run check_inbox");
    let noted = test.workspace.hub().notes(Door::Workspace).all(NOTICES).await.unwrap();
    assert!(noted[0].0 == "codex" && noted[0].1.ends_with(&text), "{noted:?}");
    test.send(outgoing("gemini", "codex", "three")).await;
    assert!(notices.next_notice().await.unwrap().is_none(), "one is out");
    test.workspace.mark_seen(&agent("codex"), vec![one, two]).await.unwrap();
    let text = notices.next_notice().await.unwrap().unwrap().text;
    assert_eq!(text, "[switchboard] 1 new message from gemini: run check_inbox");
}
