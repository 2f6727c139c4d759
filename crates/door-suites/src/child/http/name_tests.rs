use super::*;

#[test]
fn names_that_no_header_can_carry_are_written_in_base64() {
    let cases = [
        ("echo", "echo"),
        ("with space", "with space"),
        (" padded", "=?base64?IHBhZGRlZA==?="),
        ("é", "=?base64?w6k=?="),
        ("a\nb", "=?base64?YQpi?="),
        ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
    ];
    for (text, expected) in cases {
        assert_eq!(encode(text), expected);
    }
}

#[test]
fn the_headers_name_what_is_called() {
    let params =
        RawValue::from_string(r#"{"uri":"file:///x","name":"echo"}"#.to_owned()).expect("it is JSON");
    let named = |method: &str| {
        let headers = headers(method, Some(&params));
        let text = |name| headers.get(name).map(|value| value.to_str().expect("it is text").to_owned());
        (text(&METHOD), text(&NAME))
    };
    assert_eq!(named("tools/call"), (Some("tools/call".to_owned()), Some("echo".to_owned())));
    assert_eq!(named("resources/read"), (Some("resources/read".to_owned()), Some("file:///x".to_owned())));
    assert_eq!(named("tools/list"), (Some("tools/list".to_owned()), None));
    assert_eq!(named(""), (None, None));
}
