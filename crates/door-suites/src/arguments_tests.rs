use proptest::prelude::*;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Asked, Question, read};
use crate::schema::Checker;

fn raw(text: &str) -> Box<RawValue> {
    serde_json::from_str(text).unwrap()
}

/// The tool and the arguments that are understood.
fn called(text: &str, properties: &[&str]) -> Result<(String, String), String> {
    let members: serde_json::Map<_, _> =
        properties.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    let schema = raw(&json!({ "type": "object", "properties": members }).to_string());
    let given = raw(text);
    match read(Some(&given), "x_suite")? {
        Asked::Call(call) => call
            .arguments(&Checker::new(Some(&schema)))
            .map(|args| (call.subtool.clone(), args.get().to_owned())),
        Asked::Introspect(_) => panic!("understood as a question"),
    }
}

fn asked(text: &str) -> Question {
    let given = raw(text);
    match read(Some(&given), "x_suite").unwrap() {
        Asked::Introspect(question) => question,
        Asked::Call(_) => panic!("understood as a call"),
    }
}

#[test]
fn arguments_are_understood_in_every_shape_that_models_send() {
    for (given, understood) in [
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
        // What stands beside arguments that say something is never mixed in.
        (r#"{"action":"call","subtool":"echo","args":{"message":"a"},"message":"b"}"#, r#"{"message":"a"}"#),
        (r#"{"action":"call","tool":"echo","arguments":{"message":"hi"}}"#, r#"{"message":"hi"}"#),
        (r#"{"action":"call","name":"echo","params":"{\"message\":1}"}"#, r#"{"message":1}"#),
        (r#"{"action":"call","subtool":"echo","name":"n"}"#, r#"{"name":"n"}"#),
        (r#"{"action":"call","subtool":"echo","input":"text"}"#, r#"{"input":"text"}"#),
        // Numbers and the order of members stay as they were written.
        (
            r#"{"action":"call","subtool":"echo","args":{"z":12345678901234567890123,"a":1.50}}"#,
            r#"{"z":12345678901234567890123,"a":1.50}"#,
        ),
    ] {
        assert_eq!(called(given, &["message"]), Ok(("echo".to_owned(), understood.to_owned())), "{given}");
    }
    let own = r#"{"action":"call","subtool":"run","input":{"a":1}}"#;
    assert_eq!(
        called(own, &["input"]).unwrap().1,
        r#"{"input":{"a":1}}"#,
        "the tool's own argument is meant"
    );
}

#[test]
fn what_cannot_be_understood_is_told_with_the_next_step() {
    for (given, expected) in [
        (r#"{"action":"call","subtool":"echo","args":[1]}"#, "'args' has to be an object"),
        (r#"{"action":"call","subtool":"echo","args":"not json"}"#, "'args' has to be an object"),
        (r#"{"action":"call"}"#, "'subtool' is missing"),
        (r#"{"action":"call","subtool":7}"#, "'subtool' is missing"),
        (r#"{"subtool":"echo"}"#, "'action' is missing"),
        (r#"{"action":"echo"}"#, r#"{"action":"call","subtool":"echo","args":{…}}"#),
        ("[]", "have to be an object"),
        (
            r#"{"action":"calls","subtool":"x"}"#,
            "There is no action 'calls'. Did you mean 'call'? To use a tool",
        ),
    ] {
        let error = called(given, &[]).unwrap_err();
        assert!(error.contains(expected), "{given}: {error}");
    }
}

#[test]
fn a_question_is_found_at_the_top_or_in_args() {
    let expected = Question { query: Some("read file".to_owned()), limit: Some(3), ..Question::default() };
    assert_eq!(asked(r#"{"action":"introspect","query":"read file","limit":3}"#), expected);
    assert_eq!(asked(r#"{"action":"introspect","args":{"query":"read file","limit":"3"}}"#), expected);
    assert_eq!(asked(r#"{"action":"introspect","args":"{\"query\":\"read file\",\"limit\":3}"}"#), expected);
    assert_eq!(asked(r#"{"action":"introspect","args":null,"query":""}"#), Question::default());
    assert_eq!(
        asked(r#"{"action":"introspect","subtool":"echo","mode":"FULL"}"#).mode.as_deref(),
        Some("full")
    );
}

proptest! {
    #[test]
    fn no_argument_text_breaks_the_reader(text in "\\PC{0,80}") {
        for text in [text.clone(), format!(r#"{{"action":"call","subtool":"x","args":{text}}}"#)] {
            if let Ok(given) = serde_json::from_str::<Box<RawValue>>(&text)
                && let Ok(Asked::Call(call)) = read(Some(&given), "x_suite")
                && let Ok(arguments) = call.arguments(&Checker::new(None))
            {
                prop_assert!(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments.get()).is_ok());
            }
        }
    }
}
