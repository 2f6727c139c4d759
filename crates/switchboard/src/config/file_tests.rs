use serde_json::{Value, json};

use super::{ConfigFile, KNOWN};

/// Schema of the whole file: our own sections, and the keys of the suites.
pub(in crate::config) fn schema() -> Value {
    let mut schema = schemars::schema_for!(ConfigFile).to_value();
    let suites = schemars::schema_for!(door_suites::Config).to_value();
    for part in ["properties", "$defs"] {
        let more = suites[part].as_object().unwrap().clone();
        schema[part].as_object_mut().unwrap().extend(more);
    }
    schema["title"] = json!("switchboard.config.json");
    schema["description"] =
        json!("The settings of a Switchboard workspace; docs/configuration.md says more.");
    schema["properties"]["$schema"] = json!({ "type": "string" });
    schema["additionalProperties"] = json!(false);
    schema
}

/// `UPDATE_SCHEMAS=1` rewrites it.
#[test]
fn schema_file_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/switchboard.config.schema.json");
    let current = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        test_support::files::put(file, &current);
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), current, "run the test again with UPDATE_SCHEMAS=1");
}

#[test]
fn schema_keys_equal_known_keys() {
    let schema = schema();
    let mut properties: Vec<&str> =
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    properties.retain(|key| *key != "$schema");
    let mut known = KNOWN[0].1.to_vec();
    known.sort_unstable();
    assert_eq!(properties, known);
    for key in door_suites::Config::KEYS {
        assert!(known.contains(key), "{key}");
    }
}
