use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::signature;

#[test]
fn signature_reads_like_a_function() {
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
fn nested_shapes_are_limited_to_two_levels() {
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

#[test]
fn recursive_or_huge_schema_is_truncated() {
    let circle = json!({
        "properties": { "x": { "$ref": "#/$defs/j" } },
        "$defs": { "j": { "anyOf": [{ "type": "string" }, { "type": "array", "items": { "$ref": "#/$defs/j" } }] } },
    });
    assert_eq!(signature(&circle), "(x?: string|string|string|string|…[][][][])");

    let mut defs = Map::new();
    for level in 0..24 {
        let next = format!("#/$defs/d{}", level + 1);
        let choice = |name: &str| json!({ "type": "object", "properties": { name: { "$ref": next } } });
        defs.insert(format!("d{level}"), json!({ "anyOf": [choice("a"), choice("b"), { "$ref": next }] }));
    }
    let nested = json!({ "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": defs });
    assert!(signature(&nested).len() < 10_000);

    let wide: Map<String, Value> =
        (0..20_000).map(|n| (format!("{n:0100}"), json!({ "const": "y".repeat(500) }))).collect();
    let required: Vec<String> = wide.keys().cloned().collect();
    let line = signature(&json!({ "properties": wide, "required": required }));
    assert!(line.len() < 10_000 && line.ends_with(", …)"), "{line}");
}

/// Generates schemas of any shape, with references to any of four definitions.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!({ "type": "string" })),
        Just(json!({ "enum": ["a", 1, null] })),
        (0..4).prop_map(|to| json!({ "$ref": format!("#/$defs/{to}") })),
        Just(json!({ "$ref": "#" })),
        Just(json!(7)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            some().prop_map(|choices| json!({ "anyOf": choices })),
            some().prop_map(|choices| json!({ "oneOf": choices, "type": "object" })),
            some().prop_map(|choices| json!({ "allOf": choices })),
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            (some(), any::<bool>()).prop_map(|(members, are_required)| {
                let members: Map<String, Value> =
                    members.into_iter().enumerate().map(|(at, member)| (format!("p{at}"), member)).collect();
                let required: Vec<String> = members.keys().filter(|_| are_required).cloned().collect();
                json!({ "type": "object", "properties": members, "required": required })
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_schema_is_bounded(
        members in prop::collection::vec(any_schema(), 1..4),
        defs in prop::collection::vec(any_schema(), 4),
    ) {
        let named = |schemas: Vec<Value>| {
            schemas.into_iter().enumerate().map(|(at, one)| (at.to_string(), one)).collect::<Map<_, _>>()
        };
        let schema = json!({ "type": "object", "properties": named(members), "required": ["0"], "$defs": named(defs) });
        prop_assert!(signature(&schema).len() < 10_000);
        let checker = crate::schema::Checker::new(Some(&switchboard_core::json::to_raw(&schema)));
        for arguments in [json!({}), json!({ "0": 1, "1": [[["a"]]], "2": { "p0": { "p0": {} } } }), checker.example()] {
            prop_assert!(checker.check(&arguments).len() <= 8);
        }
        prop_assert!(checker.example().to_string().len() < 10_000);
    }
}
