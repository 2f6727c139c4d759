use super::*;

#[test]
fn unsafe_names_are_base64_encoded() {
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
fn routing_headers_name_the_target() {
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
