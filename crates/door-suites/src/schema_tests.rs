use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Checker;

fn checker(schema: &Value) -> Checker {
    let raw: Box<RawValue> = serde_json::value::to_raw_value(schema).unwrap();
    Checker::new(Some(&raw))
}

#[test]
fn every_invalid_field_is_reported() {
    let checker = checker(&json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "at": { "type": "object", "properties": { "line": { "type": "integer" } } } },
        "required": ["path"],
        "additionalProperties": false,
    }));
    assert!(checker.check(&json!({ "path": "x" })).is_empty());
    let wrong = checker.check(&json!({ "at": { "line": "one" }, "more": 1 }));
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    assert!(wrong.iter().any(|text| text.starts_with("at.line: ") && text.contains("integer")), "{wrong:?}");
    assert!(wrong.iter().any(|text| text.contains("\"path\"") && text.contains("required")), "{wrong:?}");
    assert!(wrong.iter().any(|text| text.contains("more")), "{wrong:?}");
}

#[test]
fn schema_draft_is_respected() {
    let tuple = |schema: &str| {
        checker(&json!({
            "$schema": schema, "type": "object",
            "properties": { "pair": { "type": "array", "items": [{ "type": "string" }, { "type": "number" }] } },
        }))
    };
    let wrong = json!({ "pair": ["a", "b"] });
    assert_eq!(tuple("http://json-schema.org/draft-07/schema#").check(&wrong).len(), 1);
    // In draft 2020-12 an array of `items` is not a schema, so nothing is checked.
    assert!(tuple("https://json-schema.org/draft/2020-12/schema").check(&wrong).is_empty());
}

#[test]
fn unverifiable_schema_accepts_everything() {
    let remote = json!({ "type": "object", "properties": { "a": { "$ref": "http://127.0.0.1:9/x.json" } } });
    let file = json!({ "type": "object", "properties": { "a": { "$ref": "file:///etc/passwd" } } });
    let mut deep = json!({ "type": "string" });
    for _ in 0..60 {
        deep = json!({ "type": "array", "items": deep });
    }
    let deep = json!({ "type": "object", "properties": { "a": deep } });
    let huge = json!({ "type": "object", "required": ["b"], "description": "x".repeat(300_000) });
    let backwards =
        json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "(?<=x)(a+)+$" } } });
    for schema in [remote, file, deep, huge, backwards, json!({ "type": 7 }), json!(null), json!([])] {
        assert!(checker(&schema).check(&json!({ "a": 1 })).is_empty());
    }
    assert!(Checker::new(None).check(&json!({})).is_empty());
}

#[test]
fn recursive_schema_is_validated() {
    let schema = json!({
        "type": "object", "required": ["tree"],
        "$defs": { "node": { "type": "object", "required": ["child"], "properties": { "child": { "$ref": "#/$defs/node" } } } },
        "properties": { "tree": { "$ref": "#/$defs/node" } },
    });
    let checker = checker(&schema);
    assert_eq!(checker.check(&json!({ "tree": { "child": {} } })).len(), 1);
    assert!(checker.example().to_string().len() < 100);
}

#[test]
fn example_validates_against_its_schema() {
    let schema = json!({
        "type": "object",
        "required": ["path", "mode", "count", "edits"],
        "properties": {
            "path": { "type": "string" }, "mode": { "enum": ["fast", "slow"] }, "count": { "type": "integer", "minimum": 5 },
            "edits": { "type": "array", "items": { "type": "object", "required": ["old"], "properties": { "old": { "type": "string" } } } },
            "not_needed": { "type": "string" },
        },
    });
    let checker = checker(&schema);
    let example = checker.example();
    assert_eq!(example, json!({ "path": "…", "mode": "fast", "count": 5, "edits": [{ "old": "…" }] }));
    assert!(checker.check(&example).is_empty());
}

#[test]
fn exponential_and_endless_schemas_are_rejected() {
    let mut defs = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        defs.insert(format!("d{level}"), json!({ "anyOf": [next, next] }));
    }
    defs.insert("d40".to_owned(), json!({ "type": "string" }));
    let multiplied =
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": defs });
    let endless = json!({
        "type": "object", "properties": { "a": { "$ref": "#/$defs/x" } },
        "$defs": {
            "x": { "properties": { "y": { "$ref": "#/$defs/y" } }, "anyOf": [{ "$ref": "#/$defs/y" }] },
            "y": { "oneOf": [{ "$ref": "#/$defs/x" }] },
        },
    });
    let anchored = json!({
        "type": "object", "properties": { "a": { "$ref": "#j" } },
        "$defs": { "x": { "$anchor": "j", "anyOf": [{ "$ref": "#j" }] } },
    });
    for schema in [multiplied, endless, anchored] {
        assert!(checker(&schema).check(&json!({ "a": 1 })).is_empty());
    }
    let list = json!({
        "type": "object", "required": ["a"], "properties": { "a": { "$ref": "#/$defs/j" } },
        "$defs": { "j": { "anyOf": [{ "type": "string" }, { "type": "array", "items": { "$ref": "#/$defs/j" } }] } },
    });
    assert_eq!(checker(&list).check(&json!({ "a": [["x"], 7] })).len(), 1, "what ends is checked");
    let mut deep = json!(7);
    for _ in 0..60 {
        deep = json!([deep]);
    }
    assert!(checker(&list).check(&json!({ "a": deep })).is_empty(), "so deep, the child has the word");
}

#[test]
fn example_of_recursive_schema_terminates() {
    let names: Vec<String> = (0..5_000).map(|number| format!("n{number}")).collect();
    let members: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({ "$ref": "#" }))).collect();
    let example = checker(&json!({ "type": "object", "properties": members, "required": names })).example();
    assert!(example.to_string().len() < 100_000);
}
