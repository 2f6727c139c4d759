use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::wire::command::{Inject, NodeNumber};

fn line(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut line = json!({
        "protocol": PROTOCOL, "type": "command", "timestamp": "2026-02-25T15:00:00Z",
        "command": "inject", "request_id": "req-123",
        "payload": { "job_id": "272900", "node_id": 0, "content": "Hello" },
    });
    change(&mut line);
    line.to_string().into_bytes()
}

fn rejected(line: &[u8]) -> CommandRejected {
    parse(line, LegacyMode::default()).unwrap().unwrap_err()
}

#[test]
fn command_of_section_2_1_parses() {
    let request = parse(&line(|_| {}), LegacyMode::default()).unwrap().unwrap();
    let inject = Inject {
        job_id: "272900".into(),
        node_id: Some(NodeNumber(0)),
        nodes: None,
        content: "Hello".into(),
    };
    let expected =
        Request { request_id: "req-123".into(), command: Command::Inject(inject), is_legacy: false };
    assert_eq!(request, expected);
    assert!(parse(b"  ", LegacyMode::default()).is_none());
}

/// Field, code, and a part of the reason.
type Expected = (Option<&'static str>, RejectCode, &'static str);

#[test]
fn rejection_names_every_invalid_field() {
    let cases: Vec<(&str, Value, Expected)> = vec![
        ("/protocol", json!("codeswarm.router.v2"), (Some("protocol"), RejectCode::WrongProtocol, "v2")),
        ("/protocol", json!(1), (Some("protocol"), RejectCode::WrongProtocol, "must be")),
        ("/type", json!("event"), (Some("type"), RejectCode::BadField, "\"event\"")),
        ("/timestamp", json!("yesterday"), (Some("timestamp"), RejectCode::BadField, "UTC")),
        ("/timestamp", json!("2026-02-25T15:00:00+02:00"), (Some("timestamp"), RejectCode::BadField, "UTC")),
        ("/command", json!(null), (Some("command"), RejectCode::BadField, "null")),
        ("/command", json!("explode"), (Some("command"), RejectCode::UnknownCommand, "unknown command")),
        ("/request_id", json!(""), (Some("request_id"), RejectCode::BadField, "1 to 256")),
        ("/request_id", json!(7), (Some("request_id"), RejectCode::BadField, "7")),
        ("/request_id", json!("x".repeat(300)), (Some("request_id"), RejectCode::BadField, "300 bytes")),
        ("/payload", json!([]), (Some("payload"), RejectCode::BadField, "an array")),
        ("/payload/job_id", json!(1), (Some("payload.job_id"), RejectCode::BadField, "a text")),
        (
            "/payload/node_id",
            json!(-1),
            (Some("payload.node_id"), RejectCode::BadField, "an integer, 0 or more"),
        ),
        ("/payload/node_id", json!(1.0), (Some("payload.node_id"), RejectCode::BadField, "1.0")),
        ("/payload/node_id", json!("0"), (Some("payload.node_id"), RejectCode::BadField, "the text \"0\"")),
        ("/payload/node_id", json!(u64::MAX), (Some("payload.node_id"), RejectCode::BadField, "integer")),
        ("/payload/content", json!(null), (Some("payload.content"), RejectCode::BadField, "null")),
        ("/payload/content", json!({ "a": 1 }), (Some("payload.content"), RejectCode::BadField, "an object")),
    ];
    for (pointer, value, (field, code, part)) in cases {
        let line = line(|line| *line.pointer_mut(pointer).unwrap() = value.clone());
        let rejected = rejected(&line);
        assert_eq!((rejected.field.as_deref(), rejected.code), (field, code), "{pointer} {value}");
        assert!(rejected.reason.contains(part), "{pointer} {value}: {}", rejected.reason);
        let kept = if pointer == "/request_id" { value.as_str() } else { Some("req-123") };
        assert_eq!(rejected.request_id.as_deref(), kept, "{pointer}");
    }
}

#[test]
fn rejection_names_every_missing_field() {
    for field in ["protocol", "type", "timestamp", "command", "request_id", "payload"] {
        let line = line(|line| drop(line.as_object_mut().unwrap().remove(field)));
        assert_eq!(rejected(&line).field.as_deref(), Some(field));
    }
    for field in ["job_id", "content"] {
        let line = line(|line| drop(line["payload"].as_object_mut().unwrap().remove(field)));
        assert_eq!(rejected(&line).field, Some(format!("payload.{field}")));
    }
}

#[test]
fn rejection_uses_json_type_names() {
    for (field, value, expected) in [
        ("nodes", json!("three"), "must be a whole number, 0 or more"),
        ("limits", json!(5), "must be an object"),
        ("limits", json!([1, 2]), "a list, but must be an object"),
        ("echo", json!([]), "a list, but must be an object"),
        ("program", json!("sh"), "must be a list"),
        ("env", json!(1), "must be an object"),
    ] {
        let mut launch = json!({ "agent": "echo" });
        launch[field] = value;
        let line = line(|line| (line["command"], line["payload"]) = (json!("launch"), launch));
        let reason = rejected(&line).reason;
        assert!(reason.starts_with(&format!("payload.{field}: ")) && reason.ends_with(expected), "{reason}");
    }
}

#[test]
fn non_object_line_is_rejected() {
    for (bad, code) in [
        (&b"[]"[..], RejectCode::NotAnObject),
        (b"null", RejectCode::NotAnObject),
        (b"{", RejectCode::InvalidJson),
        (b"{} {}", RejectCode::InvalidJson),
        (b"{\"a\":\"\xff\"}", RejectCode::NotUtf8),
    ] {
        assert_eq!(rejected(bad).code, code, "{}", String::from_utf8_lossy(bad));
    }
    assert_eq!(rejected("[".repeat(100_000).as_bytes()).code, RejectCode::InvalidJson);
}

#[test]
fn unknown_fields_are_ignored_in_both_dialects() {
    assert!(parse(&line(|line| line["payload"]["later"] = json!(1)), LegacyMode::default()).unwrap().is_ok());
    let old = json!({
        "protocol": PROTOCOL, "command": "inject", "request_id": "r",
        "payload": { "swarm_id": "s", "nodes": "all", "content": "x" },
    });
    let request = parse(old.to_string().as_bytes(), LegacyMode::default()).unwrap().unwrap();
    assert!(request.is_legacy);
    let launch = json!({
        "protocol": PROTOCOL, "command": "swarm_launch", "request_id": "r",
        "payload": { "nodes": 2, "system_prompt": "s", "provider_params": { "worker_mode": "claude" } },
    });
    let request = parse(launch.to_string().as_bytes(), LegacyMode::default()).unwrap().unwrap();
    let Command::Launch(launch) = request.command else { panic!("{request:?}") };
    assert_eq!((launch.nodes, launch.prompt.as_deref(), launch.instructions), (2, Some("s"), None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(Err(rejected)) = parse(&bytes, LegacyMode::default()) {
            prop_assert!(!rejected.reason.is_empty());
        }
    }

    /// A valid line with a few bytes changed, removed or doubled is either valid or rejected with a reason.
    #[test]
    fn mutated_lines_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..6)) {
        let mut bytes = line(|_| {});
        for (at, byte, how) in edits {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
            if bytes.is_empty() { break; }
        }
        if let Some(Err(rejected)) = parse(&bytes, LegacyMode::default()) {
            prop_assert!(!rejected.reason.is_empty());
        }
    }
}
