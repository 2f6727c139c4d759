use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Checker;

fn checker(schema: &Value) -> Checker {
    let raw: Box<RawValue> = serde_json::value::to_raw_value(schema).unwrap();
    Checker::new(Some(&raw))
}

#[test]
fn each_wrong_field_is_named() {
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
fn the_draft_is_the_one_that_the_schema_names() {
    let tuple = |schema: &str| {
        checker(&json!({
            "$schema": schema, "type": "object",
            "properties": { "pair": { "type": "array", "items": [{ "type": "string" }, { "type": "number" }] } },
        }))
    };
    let wrong = json!({ "pair": ["a", "b"] });
    assert_eq!(tuple("http://json-schema.org/draft-07/schema#").check(&wrong).len(), 1);
    // In 2020-12 a list of `items` is no schema, so nothing is checked.
    assert!(tuple("https://json-schema.org/draft/2020-12/schema").check(&wrong).is_empty());
}

#[test]
fn what_cannot_be_checked_here_is_left_to_the_child() {
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
fn circles_within_a_schema_are_fine() {
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
fn the_example_fits_its_own_schema() {
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
