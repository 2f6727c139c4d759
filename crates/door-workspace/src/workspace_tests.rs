use jiff::SignedDuration;
use switchboard_core::ResolveError;
use switchboard_hub::Part;

use super::*;
use crate::ScanSummary;
use crate::test_workspace::{
    TestWorkspace, agent, archive_file, damage_database, inbox_file, message, name, names_in, outgoing, with,
    write_carelessly,
};

#[tokio::test]
async fn folder_without_workspace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let opened = Workspace::open(folder.path(), Config::default(), |_| {}).await;
    assert!(matches!(opened, Err(WorkspaceError::NotAWorkspace { path }) if path == folder.path()));
    assert_eq!(names_in(folder.path()), [""; 0]);
}

#[tokio::test]
async fn new_workspace_has_protocol_tree_and_gitignore() {
    let t = TestWorkspace::new(&[]).await;
    for below in ["inbox", "archive", "outbox", "reviews"] {
        assert!(t.path(below).is_dir(), "{below}");
    }
    let ignored = String::from_utf8(t.bytes(".gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "*"), "{ignored}");
    t.write(".gitignore", "mine");
    t.write("inbox/codex/msg_1_a.json", "kept");
    let (_, made) = Tree::create(t.workspace_folder()).unwrap();
    assert_eq!(made, switchboard_sys::files::Created::AlreadyExists);
    assert_eq!(
        (t.bytes(".gitignore"), t.bytes("inbox/codex/msg_1_a.json")),
        (b"mine".to_vec(), b"kept".to_vec())
    );
}

#[tokio::test]
async fn workspace_folder_symlink_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), folder.path().join(crate::FOLDER)).unwrap();
    assert!(Workspace::open(folder.path(), Config::default(), |_| {}).await.is_err());
    assert!(Tree::create(folder.path()).is_err());
    assert_eq!(names_in(elsewhere.path()), [""; 0]);
}

#[tokio::test]
async fn unknown_recipient_error_names_the_nearest() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let refused = t.workspace.send(outgoing("claude", "codx", "hello")).await;
    let Err(WorkspaceError::Hub(HubError::Unresolved(ResolveError::UnknownAgent { near, .. }))) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(near, ["codex"]);
    assert_eq!(
        (t.journal().await.len(), t.names("inbox")),
        (0, vec!["claude".to_owned(), "codex".to_owned()])
    );
    let file_only = OutgoingMessage { allow_unregistered: true, ..outgoing("claude", "codx", "hello") };
    let id = t.send(file_only).await;
    assert_eq!(t.json(&inbox_file("codx", id))["payload"], "hello");
    // A folder is no registration.
    assert!(t.workspace.send(outgoing("claude", "codx", "again")).await.is_err());
}

#[tokio::test]
async fn acknowledged_message_is_archived_unchanged() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "task")).await;
    let bytes = t.bytes(&inbox_file("codex", id));
    let delivery = t.workspace.acknowledge(&agent("codex"), id, Some("done".into())).await.unwrap().unwrap();
    assert_eq!((delivery.state, delivery.note.as_deref()), (DeliveryState::Acknowledged, Some("done")));
    assert_eq!(t.bytes(&archive_file("codex", id)), bytes);
    assert_eq!(t.names("inbox/codex"), [""; 0]);
    assert_eq!(t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap(), None, "old news");
    assert_eq!(t.workspace.scan().await.unwrap(), ScanSummary::default());
    let refused = t.workspace.acknowledge(&agent("claude"), id, None).await;
    assert!(matches!(refused, Err(WorkspaceError::Hub(HubError::NotTheRecipient { .. }))), "{refused:?}");
}

#[tokio::test]
async fn message_is_found_by_either_id() {
    let t = TestWorkspace::new(&["codex"]).await;
    let ours = t.send(outgoing("claude", "codex", "ours")).await;
    assert_eq!(t.workspace.resolve_id(&ours.to_string()).await.unwrap(), ours);
    assert_eq!(t.workspace.resolve_id(&ids::to_native(ours)).await.unwrap(), ours);
    t.put("codex", &message("msg_1_a", "x", "codex", "theirs"));
    t.workspace.scan().await.unwrap();
    let theirs = t.workspace.resolve_id("msg_1_a").await.unwrap();
    assert_eq!(t.workspace.hub().journal().message(theirs).await.unwrap().unwrap().message.body, "theirs");
    for unknown in ["msg_1_b", "", "../x", "00000000-0000-7000-8000-000000000000"] {
        let refused = t.workspace.resolve_id(unknown).await;
        assert!(matches!(refused, Err(WorkspaceError::Hub(HubError::UnknownMessage { .. }))), "{refused:?}");
    }
}

#[tokio::test]
async fn dropped_task_supersedes_earlier_ones_by_default() {
    let task = |id: &str, mode: Value| {
        with(message(id, "claude", "codex", id), json!({ "metadata": { "dispatch": mode } }))
    };
    for (mode, is_replaced) in [
        (json!({}), true),
        (json!({ "queue_mode": "replace" }), true),
        (json!({ "queue_mode": "keep" }), false),
    ] {
        let t = TestWorkspace::new(&["codex", "gemini"]).await;
        // The files' times are recent, so that no task has expired.
        let now = json!({ "createdAt": iso(t.clock.now()) });
        t.put("codex", &with(task("msg_1_a", mode.clone()), now.clone()));
        t.put("codex", &with(message("msg_1_other", "gemini", "codex", "msg_1_other"), now.clone()));
        t.workspace.scan().await.unwrap();
        t.put("codex", &with(task("msg_1_b", mode.clone()), now));
        t.workspace.scan().await.unwrap();
        let first = t.id_of("msg_1_a").await;
        if !is_replaced {
            assert_eq!(t.waiting("codex").await, ["msg_1_a", "msg_1_other", "msg_1_b"], "{mode}");
            continue;
        }
        assert_eq!(t.waiting("codex").await, ["msg_1_other", "msg_1_b"], "{mode}");
        assert_eq!(t.states(first).await, ["expired"], "{mode}");
        assert_eq!(t.names("inbox/codex"), ["msg_1_b.json", "msg_1_other.json"], "{mode}");
        assert_eq!(t.names("archive/codex"), ["msg_1_a.json", "msg_1_a.json.superseded.meta"], "{mode}");
        let expected = json!({
            "id": "superseded_msg_1_a", "inReplyTo": "msg_1_a", "status": "superseded", "supersededBy": "msg_1_b",
            "supersededAt": iso(t.clock.now()),
        });
        assert_eq!(t.json("archive/codex/msg_1_a.json.superseded.meta"), expected, "{mode}");
        let receipt = t.json("outbox/claude/msg_1_a.receipt.json");
        assert_eq!(receipt["status"], "expired", "{mode}");
        assert!(receipt["error"].as_str().unwrap().starts_with("codex: superseded by"), "{receipt}");
    }
}

#[tokio::test]
async fn message_supersedes_earlier_ones_on_request() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.send(outgoing("claude", "codex", "one")).await;
    t.send(outgoing("claude", "codex", "two")).await;
    assert_eq!(t.waiting("codex").await, ["one", "two"]);
    let third =
        t.send(OutgoingMessage { replace_earlier: true, ..outgoing("claude", "codex", "three") }).await;
    assert_eq!(t.waiting("codex").await, ["three"]);
    let dispatch = &t.json(&inbox_file("codex", third))["metadata"]["dispatch"];
    assert_eq!((&dispatch["queue_mode"], &dispatch["sender"]), (&"replace".into(), &"claude".into()));
    assert_eq!(t.names("archive/codex").len(), 4);
    assert_eq!(t.workspace.scan().await.unwrap(), ScanSummary::default());
}

#[tokio::test]
async fn expired_mail_is_hidden_then_archived() {
    let t = TestWorkspace::new(&["codex"]).await;
    let now = t.clock.now();
    let expires_at = Some(now + SignedDuration::from_mins(1));
    let letter_id = t.send(OutgoingMessage { expires_at, ..outgoing("claude", "codex", "letter") }).await;
    let at = |dispatch: Value| json!({ "createdAt": iso(now), "metadata": { "dispatch": dispatch } });
    let put = |id: &str, fields: Value| t.put("codex", &with(message(id, "x", "codex", id), fields));
    put(
        "msg_1_at",
        at(json!({ "queue_mode": "keep", "expires_at": iso(now + SignedDuration::from_mins(1)) })),
    );
    put("msg_1_ttl", at(json!({ "queue_mode": "keep", "ttl_minutes": 1 })));
    put("msg_1_default", at(json!({ "queue_mode": "keep" })));
    put("msg_1_plain", json!({ "createdAt": iso(now) }));
    t.workspace.scan().await.unwrap();
    assert_eq!(t.waiting("codex").await.len(), 5);
    let expiry = &t.json(&inbox_file("codex", letter_id))["metadata"]["dispatch"]["expires_at"];
    assert_eq!(expiry, &Value::from(iso(now + SignedDuration::from_mins(1))));
    t.clock.advance(SignedDuration::from_mins(2));
    assert_eq!(t.waiting("codex").await, ["msg_1_default", "msg_1_plain"]);
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.names("inbox/codex"), ["msg_1_default.json", "msg_1_plain.json"]);
    assert_eq!(t.names("archive/codex").len(), 3);
    assert_eq!(t.states(letter_id).await, ["expired"]);
    for native in ["msg_1_at", "msg_1_ttl"] {
        let receipt = t.json(&format!("outbox/x/{native}.receipt.json"));
        assert_eq!(receipt["summary"], "Message to 'codex' expired");
        assert_eq!(receipt["error"], "codex: it expired before delivery");
    }
    t.clock.advance(SignedDuration::from_hours(8));
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.names("inbox/codex"), ["msg_1_plain.json"], "a message that is no dispatch keeps its use");
    assert_eq!(t.part("codex", Part::Done).await.len(), 4);
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), ScanSummary::default());
}

#[tokio::test]
async fn renamed_agent_is_reached_by_both_names() {
    let t = TestWorkspace::new(&["old", "claude"]).await;
    let waiting = t.send(outgoing("claude", "old", "waiting")).await;
    let done = t.send(outgoing("claude", "old", "done")).await;
    t.workspace.acknowledge(&agent("old"), done, None).await.unwrap();
    let sent = t.send(outgoing("old", "claude", "sent")).await;
    t.write("inbox/old/notes/keep.txt", "no message");
    t.workspace.rename(name("old"), name("new")).await.unwrap();
    assert_eq!(t.json(&inbox_file("new", waiting))["payload"], "waiting");
    assert_eq!(t.json(&archive_file("new", done))["payload"], "done");
    assert_eq!(t.names("outbox/new"), [format!("{}.receipt.json", ids::to_native(sent))]);
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), ScanSummary::default(), "its files do no harm");
    let state = t.json("state.json");
    let known: Vec<&String> = state["chatAgents"].as_object().unwrap().keys().collect();
    assert_eq!(known, ["claude", "new"]);
    // By the old name: a message, a dropped file, an acknowledgement.
    let again = t.send(outgoing("claude", "old", "by the old name")).await;
    assert_eq!(t.json(&inbox_file("new", again))["recipient"], "new");
    t.put("old", &message("msg_1_a", "claude", "old", "dropped under the old name"));
    t.put("new", &message("msg_1_b", "claude", "old", "dropped with the old name"));
    assert_eq!(t.workspace.scan().await.unwrap().ingested, 2);
    assert_eq!(t.names("inbox/old"), ["notes"]);
    let expected = ["waiting", "by the old name", "dropped with the old name", "dropped under the old name"];
    assert_eq!(t.waiting("new").await, expected);
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), ScanSummary::default());
    t.workspace.acknowledge(&agent("old"), waiting, None).await.unwrap();
    t.workspace.mark_seen(&agent("old"), vec![again]).await.unwrap();
    assert_eq!((t.states(waiting).await, t.states(again).await), (vec!["acknowledged"], vec!["seen"]));
    assert!(t.path(&archive_file("new", waiting)).exists());
}

#[tokio::test]
async fn removed_agent_is_not_imported_from_state() {
    let t = TestWorkspace::new(&["old", "other"]).await;
    t.workspace.create_team(name("crew"), None, false).await.unwrap();
    t.workspace.assign(name("old"), Some(name("crew"))).await.unwrap();
    let id = t.send(outgoing("other", "old", "stays")).await;
    t.workspace.rename(name("old"), name("new")).await.unwrap();
    assert!(t.workspace.deregister(name("OLD")).await.unwrap(), "by a former name");
    t.workspace.import_state().await.unwrap();
    let directory = t.workspace.hub().directory().await.unwrap();
    assert_eq!(directory.agents().map(|agent| agent.id.to_string()).collect::<Vec<_>>(), ["other"]);
    assert_eq!(t.json("state.json")["teams"]["crew"]["members"], json!([]));
    assert!(t.path(&inbox_file("new", id)).exists(), "its mail stays");
    assert!(!t.workspace.deregister(name("new")).await.unwrap());
}

#[tokio::test]
async fn composite_team_has_one_member() {
    let t = TestWorkspace::new(&["one", "two"]).await;
    t.workspace.create_team(name("solo"), None, true).await.unwrap();
    t.workspace.assign(name("one"), Some(name("solo"))).await.unwrap();
    let refused = t.workspace.assign(name("two"), Some(name("solo"))).await;
    assert!(matches!(refused, Err(WorkspaceError::Hub(HubError::CompositeTeam { .. }))), "{refused:?}");
    let team = &t.json("state.json")["teams"]["solo"];
    assert_eq!((&team["isComposite"], &team["members"]), (&true.into(), &json!(["one"])));
}

#[tokio::test]
async fn damaged_message_is_restored_from_its_file() {
    let t = TestWorkspace::new(&["claude", "codex", "gemini"]).await;
    t.workspace.rename(name("claude"), name("opus")).await.unwrap();
    t.put("codex", &message("msg_1_a", "claude", "codex", "DAMAGE by a file"));
    t.workspace.scan().await.unwrap();
    let to_one = t.send(outgoing("opus", "codex", "DAMAGE to one")).await;
    let to_all = t.send(outgoing("opus", "all", "DAMAGE to all")).await;
    let changed = t.send(outgoing("opus", "codex", "DAMAGE and changed")).await;
    t.workspace.acknowledge(&agent("codex"), to_one, None).await.unwrap();
    let t = t.reopen_after(|root| damage_database(root, "DAMAGE")).await;
    t.write(
        &inbox_file("codex", changed),
        message(&ids::to_native(changed), "opus", "codex", "forged").to_string(),
    );
    let damaged = t.workspace.hub().database().health().await.unwrap().damaged;
    assert_eq!(damaged.len(), 4);
    for row in &damaged {
        let restored = t.workspace.restore_damaged(row).await.unwrap();
        assert_eq!(restored, row.id != Some(changed), "{row:?}");
    }
    assert_eq!(t.journal().await, ["DAMAGE by a file", "DAMAGE to one", "DAMAGE to all"]);
    assert_eq!(
        t.workspace.hub().journal().message(to_all).await.unwrap().unwrap().message.to,
        Address::EVERYONE
    );
}

#[tokio::test]
async fn opening_removes_nothing() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "kept")).await;
    t.write("inbox/codex/msg_1_broken.json", "{");
    t.write("archive/2025-01/inbox/codex/msg_0.json", "{}");
    t.write("cooldowns/x.lock", "");
    let before = (t.names(""), t.names("inbox/codex"), t.names("outbox/claude"), t.bytes("state.json"));
    let t = t.reopen_after(|_| {}).await;
    assert_eq!(
        (t.names(""), t.names("inbox/codex"), t.names("outbox/claude"), t.bytes("state.json")),
        before
    );
    assert_eq!(t.states(id).await, ["delivered"]);
}

#[tokio::test]
async fn message_of_one_megabyte_is_the_limit() {
    let t = TestWorkspace::new(&["codex"]).await;
    // Every byte of this takes six in JSON.
    let body = "\u{1}".repeat(1 << 20);
    let id = t.send(outgoing("claude", "codex", &body)).await;
    assert_eq!(t.json(&inbox_file("codex", id))["payload"], body);
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), ScanSummary::default());
    let refused = t.workspace.send(outgoing("claude", "codex", &format!("{body}x"))).await;
    assert!(matches!(refused, Err(WorkspaceError::Hub(HubError::BodyTooLarge { .. }))));
    write_carelessly(&t.path(&inbox_file("codex", id)), "");
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap().restored, 1);
}
