use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::event::{EventBody, InjectionRef, Text};
use super::*;
use crate::legacy::LegacyMode;

#[test]
fn event_formats_as_line_of_section_5() {
    let at = InjectionRef { job_id: "272900".into(), node_id: 0, injection_id: "uuid".into() };
    let body = EventBody::AssistantDelta(Text { at, content: "partial\ntext".into() });
    let line = format_event(7, "2026-02-25T15:00:01.25Z".parse().unwrap(), &body);
    let expected = r#"{"protocol":"codeswarm.router.v1","type":"event","timestamp":"2026-02-25T15:00:01.250Z","seq":7,"event":"assistant_delta","data":{"job_id":"272900","node_id":0,"injection_id":"uuid","content":"partial\ntext"}}"#;
    assert_eq!(String::from_utf8(line).unwrap(), format!("{expected}\n"));
}

#[test]
fn event_escapes_unicode_line_breaks() {
    let at = InjectionRef { job_id: "1".into(), node_id: 0, injection_id: "uuid".into() };
    let content = "a\u{85}b\u{2028}c\u{2029}d\u{9b}e\u{7f}";
    let body = EventBody::Assistant(Text { at, content: content.into() });
    let line = String::from_utf8(format_event(7, "2026-02-25T15:00:01.25Z".parse().unwrap(), &body)).unwrap();
    let line = line.strip_suffix('\n').unwrap();
    assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')), "{line:?}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap()["data"]["content"], content);
}

/// `UPDATE_SCHEMAS=1` rewrites the files.
#[test]
fn schema_files_match_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/router");
    let made: BTreeMap<String, String> = schema::all()
        .into_iter()
        .map(|(name, schema)| (name, format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())))
        .collect();
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in &made {
            test_support::files::put(folder.join(name), text);
        }
    }
    let found: BTreeMap<String, String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    for (name, text) in &made {
        assert_eq!(&found[name], text, "{name}: run with UPDATE_SCHEMAS=1");
    }
}

#[test]
fn protocol_examples_match_schemas() {
    let schemas: BTreeMap<String, Value> = schema::all().into_iter().collect();
    let fits = |name: &str, line: &Value| jsonschema::is_valid(&schemas[name], line);
    let command = json!({
        "protocol": PROTOCOL, "type": "command", "timestamp": "2026-02-25T15:00:00Z", "command": "inject",
        "request_id": "req-123", "payload": { "job_id": "272900", "node_id": 0, "content": "Hello" },
    });
    assert!(fits("command.inject.schema.json", &command) && fits("envelope.schema.json", &command));
    let mut wrong = command.clone();
    wrong["payload"]["node_id"] = json!(-1);
    assert!(!fits("command.inject.schema.json", &wrong));
}

/// A payload that a schema accepts is parsed, and one that it rejects is rejected.
#[test]
fn legacy_commands_match_schemas() {
    let schemas: BTreeMap<String, Value> = schema::all().into_iter().collect();
    let line = |command: &str, payload: Value| json!({ "protocol": PROTOCOL, "command": command, "request_id": "r", "payload": payload });
    for (command, payload, is_good) in [
        ("swarm_launch", json!({}), true),
        ("swarm_launch", json!({ "nodes": 2, "system_prompt": "s", "provider": "local" }), true),
        ("swarm_launch", json!({ "provider_params": { "worker_mode": "claude" } }), true),
        ("swarm_launch", json!({ "provider_params": { "worker_mode": "mock", "model": "m" } }), true),
        ("swarm_launch", json!({ "nodes": "two" }), false),
        ("providers_list", json!({}), true),
        ("project_list", json!({}), true),
        ("swarm_list", json!({}), true),
        ("swarm_status", json!({ "swarm_id": "j" }), true),
        ("swarm_status", json!({}), false),
        ("swarm_terminate", json!({ "swarm_id": "j" }), true),
        ("swarm_terminate", json!({ "swarm_id": 1 }), false),
        ("approve_execution", json!({ "call_id": "c", "approved": true }), true),
        ("approve_execution", json!({ "approved": true }), false),
        ("inject", json!({ "swarm_id": "j", "nodes": [0, 1], "content": "x" }), true),
        ("inject", json!({ "swarm_id": "j", "nodes": "all", "content": "x" }), true),
        ("inject", json!({ "job_id": "j", "swarm_id": "j", "node_id": 0, "content": "x" }), true),
        ("inject", json!({ "swarm_id": "j", "nodes": 0 }), false),
        // The current dialect allows no omission.
        ("inject", json!({ "job_id": "j", "node_id": 0, "content": "x" }), false),
    ] {
        let line = line(command, payload);
        let fits = jsonschema::is_valid(&schemas[&format!("command.{command}.schema.json")], &line);
        let is_read =
            crate::intake::parse(line.to_string().as_bytes(), LegacyMode::default()).unwrap().is_ok();
        assert_eq!((fits, is_read), (is_good, is_good), "{line}");
    }
    let bare = json!({ "protocol": PROTOCOL, "command": "swarm_list", "request_id": "r" });
    assert!(jsonschema::is_valid(&schemas["command.swarm_list.schema.json"], &bare));
}

#[test]
fn protocol_events_match_schemas() {
    let schemas: BTreeMap<String, Value> = schema::all().into_iter().collect();
    let injection =
        json!({ "request_id": "req-123", "injection_id": "uuid", "job_id": "272900", "node_id": 0 });
    let runtime = json!({ "job_id": "272900", "node_id": 0, "injection_id": "uuid" });
    // Sections 4 to 6, with the fields that this router adds.
    for (event, mut data, more) in [
        ("inject_ack", injection.clone(), json!({ "client": "c" })),
        ("inject_delivered", injection.clone(), json!({ "client": "c" })),
        ("inject_failed", injection, json!({ "error": "string", "client": "c" })),
        ("turn_started", runtime.clone(), json!({})),
        ("assistant_delta", runtime.clone(), json!({ "content": "partial text" })),
        ("assistant", runtime.clone(), json!({ "content": "final text" })),
        ("turn_complete", runtime.clone(), json!({ "status": "completed" })),
        ("usage", runtime, json!({ "total_tokens": 8175, "job_total_tokens": 8175 })),
        (
            "command_rejected",
            json!({ "request_id": "req-123", "reason": "unknown command" }),
            json!({ "code": "unknown_command" }),
        ),
    ] {
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let line = json!({
            "protocol": PROTOCOL, "type": "event", "timestamp": "2026-02-25T15:00:01Z", "seq": 1, "event": event,
            "data": data,
        });
        assert!(jsonschema::is_valid(&schemas[&format!("event.{event}.schema.json")], &line), "{line}");
        assert!(jsonschema::is_valid(&schemas["envelope.schema.json"], &line), "{line}");
        let read = json!({ "event": event, "data": line["data"] });
        assert!(serde_json::from_value::<EventBody>(read).is_ok(), "{line}");
    }
}
