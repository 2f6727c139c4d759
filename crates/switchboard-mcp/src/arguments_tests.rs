use super::*;

fn schema() -> JsonObject {
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["to"],
        "properties": {
            "to": { "type": "string", "description": "Whom it is for." },
            "limit": { "type": ["integer", "null"], "description": "How many." },
            "seconds": { "type": "number" },
            "force": { "type": "boolean" },
            "action": { "type": "string", "enum": ["delegate_task", "execute"] },
            "ids": { "type": "array", "items": { "type": "string" } },
            "extra": { "type": "object", "additionalProperties": true },
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["path"],
                    "properties": { "path": { "type": "string" }, "what": { "type": "string" } },
                },
            },
        },
    });
    let Value::Object(schema) = schema else { panic!("an object") };
    schema
}

/// Returns the error for invalid arguments.
fn validation_error(arguments: Value) -> String {
    let Value::Object(mut arguments) = arguments else { panic!("an object") };
    let type_error = validate_arguments(&schema(), &mut arguments).expect_err("these do not fit");
    format!("{}. {}", type_error.problem, type_error.next)
}

#[test]
fn errors_name_argument_and_json_type() {
    let table = [
        (json!({}), "The argument 'to' is missing. to: Whom it is for."),
        (json!({"to": null}), "The argument 'to' is missing. to: Whom it is for."),
        (json!({"to": "a", "limt": 1}), "There is no argument 'limt'. Did you mean 'limit'?"),
        (
            json!({"to": "a", "__proto__": {}}),
            "There is no argument '__proto__'. The arguments are action, extra, files, force, ids, limit, seconds, to.",
        ),
        (json!({"to": 7}), r#"to: expected a text, got the number 7. Give e.g. "7". to: Whom it is for."#),
        (json!({"to": ["a"]}), r#"to: expected a text, got a list. Give e.g. "text". to: Whom it is for."#),
        (
            json!({"to": "a", "limit": "ten"}),
            r#"limit: expected a whole number, got the text "ten". Give e.g. 20. limit: How many."#,
        ),
        (
            json!({"to": "a", "limit": "10"}),
            r#"limit: expected a whole number, got the text "10". Give e.g. 10. limit: How many."#,
        ),
        (
            json!({"to": "a", "limit": 1.5}),
            "limit: expected a whole number, got the number 1.5. Give e.g. 20. limit: How many.",
        ),
        (
            json!({"to": "a", "limit": 1e30}),
            "limit: expected a whole number, got the number 1e+30. Give e.g. 20. limit: How many.",
        ),
        (json!({"to": "a", "seconds": true}), "seconds: expected a number, got true. Give e.g. 20."),
        (
            json!({"to": "a", "force": "yes"}),
            r#"force: expected true or false, got the text "yes". Give e.g. true."#,
        ),
        (
            json!({"to": "a", "force": "false"}),
            r#"force: expected true or false, got the text "false". Give e.g. false."#,
        ),
        (
            json!({"to": "a", "action": "delegate"}),
            r#"action: expected one of delegate_task, execute, got the text "delegate". Did you mean "delegate_task"?"#,
        ),
        (
            json!({"to": "a", "action": {}}),
            r#"action: expected one of delegate_task, execute, got an object. Give e.g. "delegate_task"."#,
        ),
        (
            json!({"to": "a", "ids": "m1"}),
            r#"ids: expected a list of texts, got the text "m1". Give e.g. ["m1"]."#,
        ),
        (
            json!({"to": "a", "ids": "[\"m1\"]"}),
            r#"ids: expected a list of texts, got the text "[\"m1\"]". Give e.g. ["m1"]."#,
        ),
        (json!({"to": "a", "ids": ["m", 2]}), r#"ids[1]: expected a text, got the number 2. Give e.g. "2"."#),
        (json!({"to": "a", "ids": [null]}), r#"ids[0]: expected a text, got null. Give e.g. "text"."#),
        (
            json!({"to": "a", "extra": "{\"a\":1}"}),
            r#"extra: expected an object, got the text "{\"a\":1}". Give e.g. {"a":1}."#,
        ),
        (
            json!({"to": "a", "extra": 1}),
            r#"extra: expected an object, got the number 1. Give e.g. {"key":"value"}."#,
        ),
        (
            json!({"to": "a", "files": "a.rs"}),
            r#"files: expected a list of objects, got the text "a.rs". Give e.g. [{"path":"text"}]."#,
        ),
        (
            json!({"to": "a", "files": [{}]}),
            "The argument 'files[0].path' is missing. See the schema of 'path'.",
        ),
        (
            json!({"to": "a", "files": [{"path": "a", "pth": "b"}]}),
            "There is no argument 'files[0].pth'. Did you mean 'path'?",
        ),
        (
            json!({"to": "a", "files": [{"path": {}}]}),
            r#"files[0].path: expected a text, got an object. Give e.g. "text"."#,
        ),
    ];
    for (input, expected) in table {
        assert_eq!(validation_error(input), expected);
    }
}

#[test]
fn valid_arguments_pass_and_integers_normalize() {
    let arguments = json!({
        "to": "a", "limit": 20.0, "seconds": 2, "force": null, "action": "execute", "extra": {"x": [1.5]},
        "files": [{"path": "a"}],
    });
    let Value::Object(mut arguments) = arguments else { panic!("an object") };
    validate_arguments(&schema(), &mut arguments).expect("they fit");
    assert_eq!((&arguments["limit"], &arguments["extra"]), (&json!(20), &json!({"x": [1.5]})));
}

#[test]
fn out_of_range_number_is_described() {
    let problem = |number: Value| out_of_range(&schema(), "limit", &number).problem;
    assert_eq!(problem(json!(-1)), "limit: expected a number from 0, got the number -1");
    assert_eq!(
        problem(json!(u64::MAX)),
        "limit: expected a smaller number, got the number 18446744073709551615"
    );
}

#[test]
fn long_value_is_truncated() {
    let refusal = validation_error(json!({"to": "a", "limit": "x".repeat(100_000)}));
    assert!(refusal.len() < 300, "{refusal}");
}
