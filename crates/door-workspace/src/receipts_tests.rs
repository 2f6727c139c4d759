use serde_json::json;
use switchboard_hub::Registration;

use super::*;
use crate::test_workspace::{TestWorkspace, agent, message, name, outgoing};

fn receipt_file(sender: &str, id: switchboard_core::MessageId) -> String {
    format!("outbox/{sender}/{}.receipt.json", ids::to_native(id))
}

async fn team(members: &[&str]) -> TestWorkspace {
    let t = TestWorkspace::new(&["lead"]).await;
    for member in members {
        let registration = Registration { team: Some(name("crew")), ..Registration::mailbox(name(member)) };
        t.workspace.register(registration).await.unwrap();
    }
    t
}

#[tokio::test]
async fn receipt_file_matches_the_protocol() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "hello")).await;
    let native = ids::to_native(id);
    let expected = json!({
        "id": format!("receipt_{native}"), "inReplyTo": native, "status": "delivered",
        "summary": "Message delivered to 'codex' inbox", "processedAt": iso(t.clock.now()), "error": null,
    });
    assert_eq!(t.names("outbox/claude"), [format!("{native}.receipt.json")]);
    assert_eq!(t.json(&receipt_file("claude", id)), expected);
}

#[tokio::test]
async fn dropped_file_gets_the_same_receipt() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.put("codex", &message("msg_1_a", "a stranger", "codex", "hello"));
    t.workspace.scan().await.unwrap();
    let expected = json!({
        "id": "receipt_msg_1_a", "inReplyTo": "msg_1_a", "status": "delivered",
        "summary": "Message delivered to 'codex' inbox", "processedAt": iso(t.clock.now()), "error": null,
    });
    assert_eq!(t.json("outbox/a stranger/msg_1_a.receipt.json"), expected);
}

#[tokio::test]
async fn receipt_is_replaced_when_state_advances() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "hello")).await;
    let native = ids::to_native(id);
    let receipt = || t.json(&receipt_file("claude", id));
    assert_eq!(receipt()["status"], "delivered");
    t.clock.advance(jiff::SignedDuration::from_secs(5));
    for _ in 0..2 {
        t.workspace.mark_seen(&agent("codex"), vec![id]).await.unwrap();
    }
    let seen = receipt();
    assert_eq!((&seen["status"], &seen["summary"]), (&"seen".into(), &"Message seen by 'codex'".into()));
    t.clock.advance(jiff::SignedDuration::from_secs(5));
    for _ in 0..2 {
        t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    }
    let done = receipt();
    assert_eq!(done["status"], "acknowledged");
    assert_ne!(done["processedAt"], seen["processedAt"]);
    assert_eq!(t.names("outbox/claude"), [format!("{native}.receipt.json")]);
}

#[tokio::test]
async fn older_receipt_never_replaces_newer() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "hello")).await;
    let (stored, delivered) = t.workspace.hub().journal().receipt(id).await.unwrap().unwrap();
    t.workspace.mark_seen(&agent("codex"), vec![id]).await.unwrap();
    let seen = t.bytes(&receipt_file("claude", id));
    let mut folders = Folders::new(t.workspace.tree());
    assert_eq!(write(&mut folders, &stored.message, &delivered, t.clock.now()).unwrap(), WriteResult::First);
    assert_eq!(t.bytes(&receipt_file("claude", id)), seen);
    // The remains of a power failure are no receipt.
    t.write(&receipt_file("claude", id), "");
    assert_eq!(
        write(&mut folders, &stored.message, &delivered, t.clock.now()).unwrap(),
        WriteResult::Replaced
    );
}

#[tokio::test]
async fn foreign_file_at_receipt_path_stays() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.write("outbox/claude/msg_1_a.receipt.json", "mine");
    t.put("codex", &message("msg_1_a", "claude", "codex", "hello"));
    t.workspace.scan().await.unwrap();
    assert_eq!(t.bytes("outbox/claude/msg_1_a.receipt.json"), b"mine");
}

#[tokio::test]
async fn oversized_foreign_file_at_receipt_path_stays() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "hello")).await;
    let path = receipt_file("claude", id);
    let large = vec![b'x'; usize::try_from(MAX_RECEIPT).unwrap() + 1];
    t.write(&path, &large);
    t.workspace.mark_seen(&agent("codex"), vec![id]).await.unwrap();
    assert_eq!(t.bytes(&path).len(), large.len());
}

#[tokio::test]
async fn group_receipt_reports_the_least_state() {
    let t = team(&["one", "two"]).await;
    let id = t.send(outgoing("lead", "team:crew", "hello")).await;
    let receipt = t.json(&receipt_file("lead", id));
    assert_eq!(receipt["summary"], "Message delivered to 2 inboxes of 'team:crew'");
    assert_eq!(receipt["status"], "delivered");
    t.workspace.acknowledge(&agent("one"), id, None).await.unwrap();
    t.workspace.mark_seen(&agent("one"), vec![id]).await.unwrap();
    let status = || t.json(&receipt_file("lead", id))["status"].clone();
    assert_eq!(status(), "delivered", "not yet seen by all");
    t.workspace.mark_seen(&agent("two"), vec![id]).await.unwrap();
    assert_eq!(status(), "seen");
    t.workspace.acknowledge(&agent("two"), id, None).await.unwrap();
    assert_eq!((status(), t.names("outbox/lead").len()), ("acknowledged".into(), 1));
}

#[tokio::test]
async fn pending_message_has_no_receipt() {
    let t = TestWorkspace::new(&["codex"]).await;
    std::fs::remove_dir(t.path("inbox/codex")).unwrap();
    t.write("inbox/codex", "in the way");
    let id = t.send(outgoing("claude", "codex", "hello")).await;
    assert_eq!(t.states(id).await, ["retrying"]);
    assert_eq!(t.names("outbox"), [""; 0]);
}

#[tokio::test]
async fn failed_receipt_names_recipients_and_reasons() {
    let t = team(&["one"]).await;
    let routes = vec![switchboard_core::Route::Session { session: "gone".into() }];
    let registration =
        Registration { routes, team: Some(name("crew")), ..Registration::mailbox(name("two")) };
    t.workspace.hub().agents().register(registration).await.unwrap();
    let id = t.send(outgoing("lead", "team:crew", "hello")).await;
    let receipt = t.json(&receipt_file("lead", id));
    assert_eq!(receipt["status"], "failed");
    assert_eq!(receipt["summary"], "Message reached 1 of 2 recipients of 'team:crew'");
    assert_eq!(receipt["error"], "two: the workspace door has no way 'session:gone'");
}

#[tokio::test]
async fn sender_of_another_realm_gets_no_receipt() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.put("codex", &message("msg_1_a", "alice@research", "codex", "hello"));
    assert_eq!(t.workspace.scan().await.unwrap().ingested, 1);
    assert_eq!(t.names("outbox"), [""; 0]);
}

#[tokio::test]
async fn person_gets_receipts() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("human", "codex", "hello")).await;
    assert_eq!(t.json(&receipt_file("human", id))["status"], "delivered");
}
