use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Example {
    /// Whom it is for.
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
fn a_schema_has_what_a_model_needs_and_nothing_else() {
    assert_eq!(
        Value::Object(schema::<Example>().as_ref().clone()),
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["recipient"],
            "properties": {
                "recipient": { "type": "string", "description": "Whom it is for." },
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
fn arguments_that_do_not_fit_say_which_why_and_what_to_do() {
    let refused = |given: Value| {
        let Value::Object(given) = given else { panic!("an object") };
        read::<Example>(Some(given)).expect_err("refused").into_text()
    };
    let table = [
        (json!({}), "The argument 'recipient' is missing. recipient: Whom it is for."),
        (json!({"recipient": null}), "The argument 'recipient' is missing. recipient: Whom it is for."),
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
            r#"recipient: expected a text, got the number 7. Give e.g. "7". recipient: Whom it is for."#,
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
    for (given, expected) in table {
        assert_eq!(refused(given), expected);
    }
}

#[test]
fn an_empty_text_that_may_be_left_out_was_left_out() {
    let Value::Object(given) = json!({ "recipient": "codex", "limit": "", "action": "", "nested": "" })
    else {
        panic!("an object")
    };
    let read: Example = read(Some(given)).unwrap();
    assert_eq!(read, Example { recipient: "codex".into(), limit: None, action: None, nested: None });
}

#[test]
fn arguments_that_fit_are_read_and_null_is_as_good_as_nothing() {
    let Value::Object(given) = json!({"recipient": "a", "limit": null, "action": "execute"}) else {
        panic!("an object")
    };
    let expected =
        Example { recipient: "a".into(), limit: None, action: Some(Action::Execute), nested: None };
    assert_eq!(read::<Example>(Some(given)).ok(), Some(expected));
}
