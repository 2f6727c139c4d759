//! Every line of the router that these tests write or read, validated against the published schemas.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

/// Schemas by file name, without the common suffix.
static SCHEMAS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/router");
    let read = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".schema.json").unwrap();
        let schema = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        (name.to_owned(), validator)
    };
    std::fs::read_dir(folder).unwrap().map(|entry| read(&entry.unwrap().path())).collect()
});

/// Builds a command line and asserts that it is valid.
pub(super) fn command(id: &str, command: &str, payload: &Value) -> String {
    let line = json!({
        "protocol": "codeswarm.router.v1", "type": "command", "timestamp": "2026-01-01T00:00:00Z",
        "command": command, "request_id": id, "payload": payload,
    });
    hold(&format!("command.{command}"), &line);
    line.to_string()
}

/// Parses a line of the router and asserts that it is valid.
pub(super) fn event(line: &str) -> Value {
    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    hold(&format!("event.{}", event["event"].as_str().unwrap_or_default()), &event);
    event
}

fn hold(name: &str, line: &Value) {
    for name in ["envelope", name] {
        let schema = SCHEMAS.get(name).unwrap_or_else(|| panic!("no schema {name}: {line}"));
        let errors: Vec<String> = schema.iter_errors(line).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{line}: {errors:?}");
    }
}

#[test]
fn schema_violations_are_detected() {
    let caught = |line: Value| std::panic::catch_unwind(|| event(&line.to_string())).is_err();
    let good = json!({
        "protocol": "codeswarm.router.v1", "type": "event", "timestamp": "2026-01-01T00:00:00Z", "seq": 1,
        "event": "turn_started", "data": { "job_id": "j", "node_id": 0, "injection_id": "i" },
    });
    event(&good.to_string());
    for (place, bad) in [
        ("/timestamp", json!("yesterday")),
        ("/seq", json!(-1)),
        ("/event", json!("unheard_of")),
        ("/data", json!({ "job_id": "j", "node_id": 0 })),
        ("/data/node_id", json!("0")),
    ] {
        let mut line = good.clone();
        *line.pointer_mut(place).unwrap() = bad;
        assert!(caught(line), "{place}");
    }
}
