use serde::Deserialize;
use serde_json::{Map, Value};

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the errors count")]
struct Limits {
    most: u32,
    ratio: Option<f64>,
    kind: Option<Kind>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Soft,
    Hard,
}

fn map(text: &str) -> String {
    describe_json_error(&serde_json::from_str::<Map<String, Value>>(text).unwrap_err())
}

fn limits(text: &str) -> String {
    describe_json_error(&serde_json::from_str::<Limits>(text).unwrap_err())
}

#[test]
fn syntax_errors_name_the_missing_part() {
    assert_eq!(map("{"), "the text ends within an object; a '}' is missing (at character 1)");
    assert_eq!(map("{x"), "a key is not in double quotes (at character 2)");
    assert_eq!(map("{\"a\" 1}"), "a ':' is missing after a key (at character 6)");
    assert_eq!(map("{\"a\": 1 \"b\": 2}"), "a ',' or '}' is missing (at character 9)");
    assert_eq!(
        map("{\n\"a\": x}"),
        "a value is missing, or a string is not in double quotes (line 2, character 6)"
    );
    assert_eq!(map("{\"a\": 1,}"), "a comma has nothing after it (at character 9)");
    assert_eq!(map("{} {}"), "there is more text after the value (at character 4)");
    assert_eq!(map("{\"a\": \"b"), "the text ends within a string; a '\"' is missing (at character 8)");
    assert_eq!(map(""), "the text ends where a value is expected");
}

#[test]
fn type_errors_use_the_words_of_json() {
    assert_eq!(map("[]"), "it is a list, but must be an object");
    assert_eq!(limits("{\"most\": \"5\"}"), "it is the text \"5\", but must be a whole number, 0 or more");
    assert_eq!(limits("{\"most\": -1}"), "it is the number -1, but must be a whole number, 0 or more");
    assert_eq!(limits("{\"most\": true}"), "it is true, but must be a whole number, 0 or more");
    assert_eq!(limits("[]"), "it is a list, but must be an object");
    assert_eq!(limits("{}"), "the field 'most' is missing");
    assert_eq!(limits("{\"least\": 1}"), "the field 'least' is unknown; one of: most, ratio, kind");
    assert_eq!(limits("{\"most\": 1, \"ratio\": []}"), "it is a list, but must be a number");
    assert_eq!(limits("{\"most\": 1, \"kind\": \"mild\"}"), "it is 'mild', but must be soft or hard");
}

#[test]
fn field_errors_continue_the_sentence() {
    let limits = |text: &str| serde_json::from_str::<Limits>(text).unwrap_err();
    assert_eq!(
        describe_field_error(&limits("{\"most\": \"5\"}")),
        "is the text \"5\", but must be a whole number, 0 or more"
    );
    assert_eq!(describe_field_error(&limits("{}")), "lacks the field 'most'");
    assert_eq!(describe_field_error(&limits("{\"least\": 1}")), "is unknown; one of: most, ratio, kind");
    let own = <serde_json::Error as serde::de::Error>::custom("a NUL character is not allowed");
    assert_eq!(describe_field_error(&own), "is refused: a NUL character is not allowed");
}
