use serde_json::json;
use switchboard_core::Origin;

use super::*;
use crate::test_workspace::{agent, name};

const ALL: &str = include_str!("../../../fixtures/workspace/message.json");
const SIGNED: &str = include_str!("../../../fixtures/workspace/message_signed.json");
const LEAST: &str = include_str!("../../../fixtures/workspace/message_least.json");

fn found(mailbox: &str) -> Found {
    Found { mailbox: name(mailbox), modified: time("2025-02-03T04:05:06.789Z"), foreign_owner: None }
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn file(text: &str) -> MessageFile {
    MessageFile::parse(text.as_bytes()).unwrap()
}

/// Builds the message that the hub accepts from a draft.
fn accepted(draft: Draft) -> Message {
    Message {
        id: draft.id,
        from: draft.from,
        to: draft.to,
        kind: draft.kind,
        body: draft.body,
        in_reply_to: draft.in_reply_to,
        thread: draft.id,
        sent_at: draft.sent_at,
        expires_at: draft.expires_at,
        metadata: draft.metadata,
        origin: Origin { native: draft.native, verified: draft.verified, route: draft.route },
        via: Vec::new(),
        signed: draft.signed,
    }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("an object") };
    object
}

#[test]
fn file_round_trips_through_a_message() {
    for (text, mailbox) in [(ALL, "coder 1"), (SIGNED, "execution")] {
        let message_file = file(text);
        let message = accepted(to_draft(message_file.clone(), &found(mailbox), None).unwrap());
        assert_eq!(to_file(&message, &agent(mailbox), None), message_file);
    }
}

#[test]
fn file_is_never_verified() {
    let draft = to_draft(file(ALL), &found("coder 1"), None).unwrap();
    assert!(!draft.verified);
    assert_eq!(draft.from, agent("lead"));
    assert_eq!(draft.to, agent("coder 1").into());
    assert_eq!(draft.body, "Add a test for the parser.\nReport the result.");
    assert_eq!(draft.sent_at, time("2025-01-01T00:00:00Z"));
    assert_eq!(draft.expires_at, Some(time("2025-01-01T00:30:00Z")));
    let native =
        NativeId { door: Door::Workspace, scope: "coder 1".into(), id: "msg_1735689600000_k3x9p2q7a".into() };
    assert_eq!(draft.native, native);
    assert_eq!(draft.route, Some(Route::Mailbox { agent: name("coder 1") }));
}

#[test]
fn file_without_time_uses_modification_time() {
    let draft = to_draft(file(LEAST), &found("coder 1"), None).unwrap();
    assert_eq!(draft.sent_at, time("2025-02-03T04:05:06.789Z"));
}

#[test]
fn reply_refers_to_a_known_parent() {
    let parent = MessageId::from_parts(1_735_689_599_000, 5);
    let draft = to_draft(file(ALL), &found("coder 1"), Some(parent)).unwrap();
    assert_eq!(draft.in_reply_to, Some(parent));
    let written = to_file(&accepted(draft), &agent("coder 1"), Some("msg_1735689599000_a1b2c3d4e".into()));
    assert_eq!(written, file(ALL));
}

#[test]
fn writer_may_use_our_key_prefix() {
    let metadata =
        object(json!({ "workspace.team": "x", "workspace.owner": 5, "workspace.extra": [1], "a": 1 }));
    let message_file = MessageFile { metadata: Some(metadata), ..file(ALL) };
    let draft = to_draft(message_file.clone(), &found("coder 1"), None).unwrap();
    let message = accepted(draft);
    assert!(!is_foreign(&message));
    assert_eq!(to_file(&message, &agent("coder 1"), None), message_file);
}

#[test]
fn bad_fields_are_named() {
    let cases = [
        ("sender", MessageFile { sender: "../lead".into(), ..file(ALL) }),
        ("sender", MessageFile { sender: String::new(), ..file(ALL) }),
        ("sender", MessageFile { sender: "all".into(), ..file(ALL) }),
        ("action", MessageFile { action: "rm -rf".into(), ..file(ALL) }),
        ("action", MessageFile { action: String::new(), ..file(ALL) }),
        ("createdAt", MessageFile { created_at: Some("yesterday".into()), ..file(ALL) }),
        ("createdAt", MessageFile { created_at: Some("2025-13-01T00:00:00".into()), ..file(ALL) }),
        ("id", MessageFile { id: "msg_../x".into(), ..file(ALL) }),
    ];
    for (field, file) in cases {
        match to_draft(file, &found("coder 1"), None) {
            Err(Malformed::Field { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn unknown_action_is_retained() {
    let draft =
        to_draft(MessageFile { action: "dance".into(), ..file(ALL) }, &found("coder 1"), None).unwrap();
    assert_eq!(draft.kind.as_str(), "dance");
}

#[test]
fn team_message_file_retains_the_team_address() {
    let draft = to_draft(file(ALL), &found("coder 1"), None).unwrap();
    let message = Message { to: "team:backend".parse().unwrap(), ..accepted(draft) };
    for member in ["coder 1", "coder 2"] {
        let mut written = to_file(&message, &agent(member), None);
        assert_eq!((written.recipient.as_str(), written.team.as_deref()), (member, Some("backend")));
        assert_eq!(written.metadata.as_ref().unwrap()["switchboard.to"], "team:backend");
        assert_eq!(group_address(&mut written), Some("team:backend".parse().unwrap()));
        assert_eq!((written.team, written.metadata), (None, file(ALL).metadata));
    }
}

#[test]
fn only_foreign_messages_get_a_trust_label() {
    let stranger = MessageFile { sender: "bob@research".into(), ..file(ALL) };
    let message = accepted(to_draft(stranger.clone(), &found("coder 1"), None).unwrap());
    assert_eq!(to_mailbox(&message, &agent("coder 1"), None), stranger);
    let peer = Route::Peer { agent: agent("bob@research") };
    let cases = [
        ("bob@research", Some(peer), true, Some("untrusted: from another owner")),
        ("lead", None, false, Some("untrusted: sender not verified")),
        ("lead", None, true, None),
    ];
    for (from, route, verified, label) in cases {
        let mut message = message.clone();
        (message.from, message.origin.route, message.origin.verified) = (agent(from), route, verified);
        let mut written = to_mailbox(&message, &agent("coder 1"), None);
        let metadata = written.metadata.as_ref().unwrap();
        assert_eq!(metadata.get("switchboard.trust").and_then(|label| label.as_str()), label, "{from}");
        drop_label(&mut written);
        assert_eq!(written.metadata, stranger.metadata);
    }
}

#[test]
fn only_a_dispatch_expires() {
    let sent = time("2025-01-01T00:00:00Z");
    let cases = [
        (json!({}), None),
        (json!({ "expires_at": "2025-01-01T01:00:00Z" }), None),
        (json!({ "dispatch": "x" }), None),
        (json!({ "dispatch": {} }), Some("2025-01-01T08:00:00Z")),
        (json!({ "dispatch": { "expires_at": "2025-01-01T01:00:00Z" } }), Some("2025-01-01T01:00:00Z")),
        (json!({ "dispatch": { "expires_at": "soon", "ttl_minutes": 5 } }), Some("2025-01-01T00:05:00Z")),
        (json!({ "dispatch": { "expires_at": "soon" } }), Some("2025-01-01T08:00:00Z")),
        (json!({ "dispatch": { "ttl_minutes": 1 } }), Some("2025-01-01T00:01:00Z")),
        (json!({ "dispatch": { "ttl_minutes": -1 } }), Some("2025-01-01T00:00:00Z")),
        (json!({ "dispatch": { "ttl_minutes": i64::MAX } }), Some("2026-01-01T00:00:00Z")),
        (json!({ "dispatch_ttl_minutes": 2 }), Some("2025-01-01T00:02:00Z")),
    ];
    for (metadata, expected) in cases {
        assert_eq!(dispatch_expiry(&object(metadata.clone()), sent), expected.map(time), "{metadata}");
    }
}

#[test]
fn only_replace_mode_supersedes_earlier_tasks() {
    let cases = [
        ("delegate_task", json!({}), false),
        ("delegate_task", json!({ "dispatch": {} }), true),
        ("delegate_task", json!({ "dispatch": { "queue_mode": "replace" } }), true),
        ("delegate_task", json!({ "dispatch": { "queue_mode": "keep" } }), false),
        ("status_update", json!({ "dispatch": {} }), false),
    ];
    for (action, metadata, expected) in cases {
        let file =
            MessageFile { action: action.into(), metadata: Some(object(metadata.clone())), ..file(ALL) };
        let message = accepted(to_draft(file, &found("coder 1"), None).unwrap());
        assert_eq!(replaces_earlier(&message), expected, "{action} {metadata}");
    }
}

#[test]
fn foreign_owner_is_stored_but_not_written() {
    let found = Found { foreign_owner: Some(1234), ..found("coder 1") };
    let message = accepted(to_draft(file(ALL), &found, None).unwrap());
    assert!(is_foreign(&message));
    assert_eq!(to_file(&message, &agent("coder 1"), None), file(ALL));
}

#[test]
fn times_have_milliseconds_and_a_z() {
    assert_eq!(iso(time("2025-01-01T00:00:00Z")), "2025-01-01T00:00:00.000Z");
    assert_eq!(iso(time("2025-01-01T00:00:00.123456Z")), "2025-01-01T00:00:00.123Z");
}

#[test]
fn time_without_zone_is_utc() {
    for text in [
        "2025-01-01T00:00:00.000",
        "2025-01-01T00:00:00",
        "2025-01-01T00:00:00Z",
        "2025-01-01T02:00:00+02:00",
    ] {
        assert_eq!(time_of(text).map(iso).as_deref(), Some("2025-01-01T00:00:00.000Z"), "{text}");
    }
    for text in ["", "soon", "12:00", "1735689600"] {
        assert_eq!(time_of(text), None, "{text}");
    }
}
