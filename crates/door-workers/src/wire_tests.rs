use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::event::{At, EventBody, Text};
use super::*;

#[test]
fn an_event_is_the_line_of_section_5() {
    let at = At { job_id: "272900".into(), swarm_id: None, node_id: 0, injection_id: "uuid".into() };
    let body = EventBody::AssistantDelta(Text { at, content: "partial\ntext".into() });
    let line = event_line(7, "2026-02-25T15:00:01.25Z".parse().unwrap(), &body);
    let expected = r#"{"protocol":"codeswarm.router.v1","type":"event","timestamp":"2026-02-25T15:00:01.250Z","seq":7,"event":"assistant_delta","data":{"job_id":"272900","node_id":0,"injection_id":"uuid","content":"partial\ntext"}}"#;
    assert_eq!(String::from_utf8(line).unwrap(), format!("{expected}\n"));
}

/// `UPDATE_SCHEMAS=1` writes them anew.
#[test]
fn the_checked_in_schemas_are_those_of_the_types() {
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
fn the_examples_of_the_protocol_fit_the_schemas() {
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
