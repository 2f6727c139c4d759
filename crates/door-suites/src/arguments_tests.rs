use proptest::prelude::*;
use serde_json::json;
use serde_json::value::RawValue;

use super::{IntrospectQuery, SuiteRequest, parse};
use crate::schema::Checker;

fn raw(text: &str) -> Box<RawValue> {
    serde_json::from_str(text).unwrap()
}

/// Parses a call and returns its tool and arguments.
fn parse_call(text: &str, properties: &[&str]) -> Result<(String, String), String> {
    let members: serde_json::Map<_, _> =
        properties.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    let schema = raw(&json!({ "type": "object", "properties": members }).to_string());
    let arguments = raw(text);
    match parse(Some(&arguments), "x_suite")? {
        SuiteRequest::Call(call) => call
            .arguments(&Checker::new(Some(&schema)))
            .map(|args| (call.subtool.clone(), args.get().to_owned())),
        SuiteRequest::Introspect(_) => panic!("understood as a question"),
    }
}

fn parse_query(text: &str) -> IntrospectQuery {
    let arguments = raw(text);
    match parse(Some(&arguments), "x_suite").unwrap() {
        SuiteRequest::Introspect(question) => question,
        SuiteRequest::Call(_) => panic!("understood as a call"),
    }
}

#[test]
fn every_argument_shape_is_parsed() {
    for (input, understood) in [
        (r#"{"action":"call","subtool":"echo","args":{"message":"hi"}}"#, r#"{"message":"hi"}"#),
        (r#"{"action":"CALL ","subtool":" echo ","args":"{\"message\":\"hi\"}"}"#, r#"{"message":"hi"}"#),
        (r#"{"action":"call","subtool":"echo","args":null}"#, "{}"),
        (r#"{"action":"call","subtool":"echo","args":""}"#, "{}"),
        (r#"{"action":"call","subtool":"echo"}"#, "{}"),
        (r#"{"action":"call","subtool":"echo","message":"hi"}"#, r#"{"message":"hi"}"#),
        (r#"{"action":"call","subtool":"echo","args":{ },"message":"hi"}"#, r#"{"message":"hi"}"#),
        (
            r#"{"action":"call","subtool":"echo","args":null,"message":"hi","other":null}"#,
            r#"{"message":"hi"}"#,
        ),
        // Top-level keys are never merged into non-empty arguments.
        (r#"{"action":"call","subtool":"echo","args":{"message":"a"},"message":"b"}"#, r#"{"message":"a"}"#),
        (r#"{"action":"call","tool":"echo","arguments":{"message":"hi"}}"#, r#"{"message":"hi"}"#),
        (r#"{"action":"call","name":"echo","params":"{\"message\":1}"}"#, r#"{"message":1}"#),
        (r#"{"action":"call","subtool":"echo","name":"n"}"#, r#"{"name":"n"}"#),
        (r#"{"action":"call","subtool":"echo","input":"text"}"#, r#"{"input":"text"}"#),
        // Numbers and the order of members are preserved.
        (
            r#"{"action":"call","subtool":"echo","args":{"z":12345678901234567890123,"a":1.50}}"#,
            r#"{"z":12345678901234567890123,"a":1.50}"#,
        ),
    ] {
        assert_eq!(
            parse_call(input, &["message"]),
            Ok(("echo".to_owned(), understood.to_owned())),
            "{input}"
        );
    }
    let own = r#"{"action":"call","subtool":"run","input":{"a":1}}"#;
    assert_eq!(
        parse_call(own, &["input"]).unwrap().1,
        r#"{"input":{"a":1}}"#,
        "the tool's own argument is meant"
    );
}

#[test]
fn unparsable_request_error_names_next_step() {
    for (input, expected) in [
        (r#"{"action":"call","subtool":"echo","args":[1]}"#, "'args' must be an object"),
        (r#"{"action":"call","subtool":"echo","args":"not json"}"#, "'args' must be an object"),
        (r#"{"action":"call"}"#, "'subtool' is missing"),
        (r#"{"action":"call","subtool":7}"#, "'subtool' is missing"),
        (r#"{"subtool":"echo"}"#, "'action' is missing"),
        (r#"{"action":"echo"}"#, r#"{"action":"call","subtool":"echo","args":{…}}"#),
        ("[]", "must be an object"),
        (
            r#"{"action":"calls","subtool":"x"}"#,
            "There is no action 'calls'. Did you mean 'call'? To use a tool",
        ),
    ] {
        let error = parse_call(input, &[]).unwrap_err();
        assert!(error.contains(expected), "{input}: {error}");
    }
}

#[test]
fn introspection_parses_top_level_or_args() {
    let expected =
        IntrospectQuery { query: Some("read file".to_owned()), limit: Some(3), ..IntrospectQuery::default() };
    assert_eq!(parse_query(r#"{"action":"introspect","query":"read file","limit":3}"#), expected);
    assert_eq!(parse_query(r#"{"action":"introspect","args":{"query":"read file","limit":"3"}}"#), expected);
    assert_eq!(
        parse_query(r#"{"action":"introspect","args":"{\"query\":\"read file\",\"limit\":3}"}"#),
        expected
    );
    assert_eq!(parse_query(r#"{"action":"introspect","args":null,"query":""}"#), IntrospectQuery::default());
    assert_eq!(
        parse_query(r#"{"action":"introspect","subtool":"echo","mode":"FULL"}"#).mode.as_deref(),
        Some("full")
    );
}

proptest! {
    #[test]
    fn arbitrary_arguments_never_panic(text in "\\PC{0,80}") {
        for text in [text.clone(), format!(r#"{{"action":"call","subtool":"x","args":{text}}}"#)] {
            if let Ok(input) = serde_json::from_str::<Box<RawValue>>(&text)
                && let Ok(SuiteRequest::Call(call)) = parse(Some(&input), "x_suite")
                && let Ok(arguments) = call.arguments(&Checker::new(None))
            {
                prop_assert!(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments.get()).is_ok());
            }
        }
    }
}
