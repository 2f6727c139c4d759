use super::*;

#[test]
fn hosts_parse_with_and_without_port() {
    let host = |name: &str, port| Some(Host { name: name.to_owned(), port });
    assert_eq!(Host::parse("LocalHost"), host("localhost", None));
    assert_eq!(Host::parse("127.0.0.1:3100"), host("127.0.0.1", Some(3100)));
    assert_eq!(Host::parse("[::1]:3100"), host("[::1]", Some(3100)));
    assert_eq!(Host::parse("[::1]"), host("[::1]", None));
    for text in ["", ":3100", "a@localhost", "localhost:x", "localhost:99999", "local host", "localhost/x"] {
        assert_eq!(Host::parse(text), None, "{text}");
    }
}

#[test]
fn origins_are_compared_with_their_port() {
    assert_eq!(normalize_origin("https://App.example").as_deref(), Some("https://app.example:443"));
    assert_eq!(normalize_origin("http://localhost:5173").as_deref(), Some("http://localhost:5173"));
    assert_eq!(normalize_origin("vscode-webview://x").as_deref(), Some("vscode-webview://x"));
    for text in ["null", "", "localhost", "http://a/b", "http://a/", "http://a?b", "http://a@b", "//a"] {
        assert_eq!(normalize_origin(text), None, "{text}");
    }
}

#[test]
fn invalid_allow_entry_is_named() {
    let admission = |config: HttpConfig| Admission::new(&config, 1, Token::generate().unwrap());
    let config = HttpConfig { allowed_hosts: vec!["a b".to_owned()], ..HttpConfig::default() };
    assert_eq!(
        admission(config).unwrap_err().to_string(),
        "`a b` cannot be an allowed host; write a name, or a name and a port such as `devbox:3100`"
    );
    let config = HttpConfig { allowed_origins: vec!["*".to_owned()], ..HttpConfig::default() };
    assert!(admission(config).unwrap_err().to_string().starts_with("`*` cannot be an allowed origin"));
}
