use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Example {
    /// The recipient.
    recipient: String,
    /// How many.
    limit: Option<u32>,
    action: Option<Action>,
    nested: Option<Vec<Nested>>,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Action {
    DelegateTask,
    Execute,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
struct Nested {
    path: String,
}

#[test]
fn schema_has_only_parts_for_models() {
    assert_eq!(
        Value::Object(schema::<Example>().as_ref().clone()),
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["recipient"],
            "properties": {
                "recipient": { "type": "string", "description": "The recipient." },
                "limit": { "type": "integer", "description": "How many." },
                "action": { "type": "string", "enum": ["delegate_task", "execute"] },
                "nested": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": false,
                        "required": ["path"],
                        "properties": { "path": { "type": "string" } },
                    },
                },
            },
        })
    );
}

#[test]
fn invalid_arguments_are_named_with_next_step() {
    let refused = |arguments: Value| {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        read::<Example>(Some(arguments)).expect_err("refused").into_text()
    };
    let table = [
        (json!({}), "The argument 'recipient' is missing. recipient: The recipient."),
        (json!({"recipient": null}), "The argument 'recipient' is missing. recipient: The recipient."),
        (
            json!({"recipient": "a", "recipent": "b"}),
            "There is no argument 'recipent'. Did you mean 'recipient'?",
        ),
        (
            json!({"recipient": "a", "__proto__": {}}),
            "There is no argument '__proto__'. The arguments are action, limit, nested, recipient.",
        ),
        (
            json!({"recipient": 7}),
            r#"recipient: expected a text, got the number 7. Give e.g. "7". recipient: The recipient."#,
        ),
        (
            json!({"recipient": "a", "limit": -1}),
            "limit: expected a number from 0, got the number -1. Give e.g. 20. limit: How many.",
        ),
        (
            json!({"recipient": "a", "limit": 5_000_000_000_u64}),
            "limit: expected a smaller number, got the number 5000000000. Give e.g. 20. limit: How many.",
        ),
        (
            json!({"recipient": "a", "action": "delegate"}),
            r#"action: expected one of delegate_task, execute, got the text "delegate". Did you mean "delegate_task"?"#,
        ),
        (
            json!({"recipient": "a", "nested": [{"path": 1}]}),
            r#"nested[0].path: expected a text, got the number 1. Give e.g. "1"."#,
        ),
    ];
    for (arguments, expected) in table {
        assert_eq!(refused(arguments), expected);
    }
}

#[test]
fn empty_optional_text_counts_as_absent() {
    let Value::Object(given) = json!({ "recipient": "codex", "limit": "", "action": "", "nested": "" })
    else {
        panic!("an object")
    };
    let read: Example = read(Some(given)).unwrap();
    assert_eq!(read, Example { recipient: "codex".into(), limit: None, action: None, nested: None });
}

#[test]
fn null_arguments_count_as_absent() {
    let Value::Object(given) = json!({"recipient": "a", "limit": null, "action": "execute"}) else {
        panic!("an object")
    };
    let expected =
        Example { recipient: "a".into(), limit: None, action: Some(Action::Execute), nested: None };
    assert_eq!(read::<Example>(Some(given)).ok(), Some(expected));
}
