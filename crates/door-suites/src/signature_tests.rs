use serde_json::json;

use super::signature;

#[test]
fn arguments_read_like_those_of_a_function() {
    let schema = json!({
        "type": "object",
        "properties": {
            "b": { "type": "number" },
            "a": { "type": "string" },
            "kind": { "enum": ["x", "y"] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "maybe": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "free": {},
        },
        "required": ["b", "kind"],
    });
    assert_eq!(
        signature(&schema),
        r#"(b: number, kind: "x"|"y", a?: string, free?: any, maybe?: integer, tags?: string[])"#
    );
    assert_eq!(signature(&json!({ "type": "object" })), "()");
}

#[test]
fn shapes_are_shown_two_levels_deep_and_circles_end() {
    let schema = json!({
        "type": "object",
        "$defs": { "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } } } },
        "properties": { "list": { "type": "array", "items": { "$ref": "#/$defs/node" } } },
        "required": ["list"],
    });
    assert_eq!(signature(&schema), "(list: {next?: {next?: object}}[])");
    let looped =
        json!({ "$defs": { "a": { "$ref": "#/$defs/a" } }, "properties": { "x": { "$ref": "#/$defs/a" } } });
    assert_eq!(signature(&looped), "(x?: any)");
}
