use super::*;

#[test]
fn appended_text_leaves_result_unchanged() {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let added = with_text(raw(r#"{"content":[{"type":"new", "n":1e400}],"x":1.0e0}"#), "mail");
    let block = r#"{"text":"mail","type":"text"}"#;
    assert_eq!(added.get(), format!(r#"{{"content":[{{"type":"new", "n":1e400}},{block}],"x":1.0e0}}"#));
    for other in [r#"{"resultType":"input_required"}"#, r#"{"content":"odd"}"#, "[]"] {
        assert_eq!(with_text(raw(other), "mail").get(), other);
    }
}

#[test]
fn is_error_needs_the_flag() {
    for (text, expected) in [(r#"{"isError":true}"#, true), (r#"{"isError":false}"#, false), ("{}", false)] {
        assert_eq!(is_error(&RawValue::from_string(text.to_owned()).unwrap()), expected, "{text}");
    }
}
