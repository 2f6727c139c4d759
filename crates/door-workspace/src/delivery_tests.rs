use switchboard_core::Door;
use switchboard_hub::Registration;

use super::*;
use crate::test_workspace::{TestWorkspace, agent, inbox_file, name, outgoing};

#[tokio::test]
async fn message_file_matches_the_protocol() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let mut first = outgoing("claude", "codex", "Look at this.\n\u{1f4e8}");
    first.metadata.insert("k".into(), serde_json::json!({ "a": [1, null] }));
    let id = t.send(first).await;
    let native = ids::to_native(id);
    let sent_at = crate::translate::iso(t.clock.now());
    let expected = serde_json::json!({
        "id": native, "action": "delegate_task", "sender": "claude", "recipient": "codex",
        "payload": "Look at this.\n\u{1f4e8}", "metadata": { "k": { "a": [1, null] } }, "createdAt": sent_at,
    });
    assert_eq!(t.json(&inbox_file("codex", id)), expected);
    let answer = crate::OutgoingMessage { in_reply_to: Some(id), ..outgoing("codex", "claude", "Done.") };
    let answer = t.send(answer).await;
    assert_eq!(t.json(&inbox_file("claude", answer))["replyTo"], native.as_str());
}

#[tokio::test]
async fn mailbox_files_are_private_and_complete() {
    use std::os::unix::fs::MetadataExt;
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "secret")).await;
    assert_eq!(std::fs::metadata(t.path(&inbox_file("codex", id))).unwrap().mode() & 0o777, 0o600);
    assert_eq!(t.names("inbox/codex").len(), 1);
    assert_eq!(t.names("outbox/claude").len(), 1);
}

#[tokio::test]
async fn team_message_writes_one_file_per_member() {
    let t = TestWorkspace::new(&["lead"]).await;
    for member in ["coder 1", "coder 2"] {
        let registration =
            Registration { team: Some(name("backend")), ..Registration::mailbox(name(member)) };
        t.workspace.register(registration).await.unwrap();
    }
    t.workspace.assign(name("lead"), Some(name("backend"))).await.unwrap();
    let id = t.send(outgoing("lead", "team:backend", "Plan?")).await;
    for member in ["coder 1", "coder 2"] {
        let file = t.json(&inbox_file(member, id));
        assert_eq!((&file["recipient"], &file["team"]), (&member.into(), &"backend".into()));
        assert_eq!((&file["id"], &file["payload"]), (&ids::to_native(id).into(), &"Plan?".into()));
    }
    assert_eq!(t.names("inbox/lead"), [""; 0], "the sender does not get its own");
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), crate::ScanSummary::default());
}

#[tokio::test]
async fn message_to_all_reaches_the_person() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let id = t.send(outgoing("claude", "all", "hello")).await;
    for who in ["codex", "human"] {
        let file = t.json(&inbox_file(who, id));
        assert_eq!((&file["recipient"], &file["team"]), (&who.into(), &serde_json::Value::Null));
    }
}

#[tokio::test]
async fn repeated_delivery_finds_its_own_file() {
    let t = TestWorkspace::new(&["codex"]).await;
    // Handed over and never reported, as by a process that was killed right after writing.
    let mut outbound = t.workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
    let accepted = t.workspace.send(outgoing("claude", "codex", "once")).await.unwrap();
    let handoff = outbound.next(1).await.pop().unwrap();
    assert_eq!(
        write_one(&mut Folders::new(t.workspace.tree()), t.workspace.own_files(), &handoff, None),
        Outcome::Delivered
    );
    let first = t.bytes(&inbox_file("codex", accepted.id));
    assert_eq!(
        write_one(&mut Folders::new(t.workspace.tree()), t.workspace.own_files(), &handoff, None),
        Outcome::Delivered
    );
    let written = write_all(&t.workspace, vec![handoff]).await.unwrap();
    report_all(t.workspace.clone(), written).await;
    assert_eq!(t.states(accepted.id).await, ["delivered"]);
    assert_eq!(t.bytes(&inbox_file("codex", accepted.id)), first);
    assert_eq!(t.names("inbox/codex").len(), 1);
}

#[tokio::test]
async fn delivery_in_flight_is_not_ingested() {
    let t = TestWorkspace::new(&["codex"]).await;
    let mut outbound = t.workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
    let accepted = t.workspace.send(outgoing("claude", "codex", "once")).await.unwrap();
    let handoff = outbound.next(1).await.pop().unwrap();
    assert_eq!(
        write_one(&mut Folders::new(t.workspace.tree()), t.workspace.own_files(), &handoff, None),
        Outcome::Delivered
    );
    // Another process scans the mailbox between the write and the report.
    assert_eq!(t.open_another().await.scan().await.unwrap(), crate::ScanSummary::default());
    assert_eq!(t.states(accepted.id).await, ["in_flight"]);
    assert_eq!((t.rejected_files().await, t.names("inbox/codex").len()), (vec![], 1));
    let written = write_all(&t.workspace, vec![handoff]).await.unwrap();
    report_all(t.workspace.clone(), written).await;
    assert_eq!(t.states(accepted.id).await, ["delivered"]);
}

#[tokio::test]
async fn conflicting_file_is_moved_aside() {
    let t = TestWorkspace::new(&["codex"]).await;
    let mailbox = t.workspace.tree().create_folder(Section::Inbox, &name("codex")).unwrap();
    let mut outbound = t.workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
    t.workspace.send(outgoing("claude", "codex", "real")).await.unwrap();
    let handoff = outbound.next(1).await.pop().unwrap();
    let file = to_mailbox(&handoff.message, &agent("codex"), None);
    t.write(&format!("inbox/codex/{}.json", file.id), "in the way");
    write_file(&mailbox, &mailbox, &file).unwrap();
    let names = t.names("inbox/codex");
    assert_eq!(names.len(), 2);
    assert_eq!(t.bytes(&format!("inbox/codex/{}", names[0])), file.to_bytes());
    assert!(is_conflict_name(&names[1]), "{names:?}");
    assert_eq!(t.bytes(&format!("inbox/codex/{}", names[1])), b"in the way");
    write_file(&mailbox, &mailbox, &file).unwrap();
    assert_eq!(t.names("inbox/codex"), names, "and once it is there, it is there");
}

#[tokio::test]
async fn foreign_route_is_refused() {
    let t = TestWorkspace::new(&[]).await;
    let routes = vec![Route::Session { session: "s1".into() }];
    let registration = Registration { routes, ..Registration::mailbox(name("codex")) };
    t.workspace.hub().agents().register(registration).await.unwrap();
    let id = t.send(outgoing("claude", "codex", "x")).await;
    assert_eq!(t.states(id).await, ["refused"]);
    assert_eq!(t.json(&format!("outbox/claude/{}.receipt.json", ids::to_native(id)))["status"], "failed");
}
