use std::time::Duration;

use serde_json::json;

use super::{Bounds, WrapperSettings};

fn settings(value: serde_json::Value) -> WrapperSettings {
    serde_json::from_value(value).expect("settings")
}

#[test]
fn bounds_have_defaults_and_limits() {
    let default = Bounds { turns: 12, tokens: 100_000, time: Duration::from_mins(2) };
    assert_eq!(WrapperSettings::default().bounds("notes").expect("bounds"), default);
    let own = settings(json!({ "maxTurns": 3, "maxTokens": 50, "timeoutMs": 1500 }));
    let bounds = Bounds { turns: 3, tokens: 50, time: Duration::from_millis(1500) };
    assert_eq!(own.bounds("notes").expect("bounds"), bounds);
    for (wrong, message) in [
        (json!({ "maxTurns": 0 }), "the key 'suites.notes.wrapper.maxTurns' is 0, but must be at least 1"),
        (
            json!({ "maxTurns": 101 }),
            "the key 'suites.notes.wrapper.maxTurns' is 101, but may be at most 100",
        ),
        (json!({ "maxTokens": 0 }), "the key 'suites.notes.wrapper.maxTokens' is 0, but must be at least 1"),
        (
            json!({ "timeoutMs": 600_001 }),
            "the key 'suites.notes.wrapper.timeoutMs' is 600001, but may be at most 600000",
        ),
    ] {
        assert_eq!(settings(wrong).bounds("notes").expect_err("refused").to_string(), message);
    }
}

#[test]
fn every_wrapper_key_is_known() {
    let schema = serde_json::to_value(schemars::schema_for!(WrapperSettings)).expect("a schema");
    let mut keys: Vec<&str> =
        schema["properties"].as_object().expect("properties").keys().map(String::as_str).collect();
    let mut known = WrapperSettings::KEYS.to_vec();
    keys.sort_unstable();
    known.sort_unstable();
    assert_eq!(keys, known);
}
