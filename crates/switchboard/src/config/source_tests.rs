use serde_json::json;

use super::*;

fn source(text: &str) -> Result<Source, String> {
    Source::parse(PathBuf::from("/w/x.json"), text.into()).map_err(|failure| failure.message)
}

#[test]
fn comments_and_trailing_commas_are_accepted() {
    let text = "{\n  // how many\n  \"hub\": { \"replyHops\": 5, }, /* more */\n  \"list\": [1, 2,],\n}";
    assert_eq!(source(text).unwrap().value, json!({ "hub": { "replyHops": 5 }, "list": [1, 2] }));
}

#[test]
fn strict_json_keeps_its_meaning() {
    for text in [r#"{"a": 1, "a": 2}"#, r#"{"n": 12345678901234567890, "f": 1e40}"#, r#""//""#, "1.0", "[]"] {
        assert_eq!(source(text).unwrap().value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
    }
}

#[test]
fn other_dialects_are_refused_with_their_line() {
    for (text, problem) in [
        ("{", "/w/x.json:1: a '}' is missing"),
        ("{\n  \"a\": 1\n  \"b\": 2\n}", "/w/x.json:2: a ',' is missing"),
        ("{\n  a: 1\n}", "/w/x.json:2: a key is not in double quotes"),
        ("{\n  'a': 1\n}", "/w/x.json:2: a text is not in double quotes"),
        ("{\"a\": 0xff}", "/w/x.json:1: hexadecimal numbers are not allowed"),
        ("", "/w/x.json:1: the text ends where a value is expected"),
    ] {
        assert_eq!(source(text).map(|_| ()), Err(problem.to_owned()), "{text}");
    }
}

#[test]
fn nested_lists_are_bounded() {
    assert!(source(&format!("// deep\n{}", "[".repeat(100_000))).is_err());
}

#[test]
fn problems_name_the_line_of_their_setting() {
    let source = source(
        "{\n  // limits\n  \"hub\": {\n    \"replyHops\": \"many\"\n  },\n  \"list\": [\n    {\n      \"x\": 1\n    }\n  ]\n}",
    );
    let source = source.unwrap();
    for (problem, line) in [
        ("'hub.replyHops' is wrong", ":4"),
        ("'hub.other' is wrong", ":3"),
        ("'list[0].x' is wrong", ":8"),
        ("'nothing' is wrong", ""),
        ("it must be an object", ""),
    ] {
        assert_eq!(source.refuse(problem).message, format!("/w/x.json{line}: {problem}"));
    }
}
