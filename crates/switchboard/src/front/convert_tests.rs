use super::*;

#[test]
fn a_text_is_added_and_the_rest_stays_as_it_was_written() {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let added = with_text(raw(r#"{"content":[{"type":"new", "n":1e400}],"x":1.0e0}"#), "mail");
    let block = r#"{"text":"mail","type":"text"}"#;
    assert_eq!(added.get(), format!(r#"{{"content":[{{"type":"new", "n":1e400}},{block}],"x":1.0e0}}"#));
    for other in [r#"{"resultType":"input_required"}"#, r#"{"content":"odd"}"#, "[]"] {
        assert_eq!(with_text(raw(other), "mail").get(), other);
    }
}

#[test]
fn only_what_says_so_is_an_error() {
    for (text, expected) in [(r#"{"isError":true}"#, true), (r#"{"isError":false}"#, false), ("{}", false)] {
        assert_eq!(is_error(&RawValue::from_string(text.to_owned()).unwrap()), expected, "{text}");
    }
}
