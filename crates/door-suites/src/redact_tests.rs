use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Secrets, is_secret, redact, redact_values};

#[test]
fn secrets_are_detected_by_pattern() {
    let none = Secrets::default();
    for (text, expected) in [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted]"),
        ("key sk-proj-0123abcd4567efgh, then", "key [redacted], then"),
        ("ghp_0123456789abcdefghij0123456789abcdef", "[redacted]"),
        ("id AKIAIOSFODNN7EXAMPLE!", "id [redacted]!"),
        ("postgres://me:hunter2@db/x", "postgres://me:[redacted]@db/x"),
        ("https://a.example/?api_key=abcdef123&x=1", "https://a.example/?api_key=[redacted]&x=1"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghij", "[redacted]"),
    ] {
        assert_eq!(redact(text, &none), expected);
    }
}

#[test]
fn ordinary_words_are_not_redacted() {
    let none = Secrets::default();
    for text in [
        "the bearer of news",
        "task-management and sk-1",
        "https://example.com/a@b",
        "Bearer ${GITHUB_TOKEN}",
        "http://user:${PW}@host/",
        "monkey=banana",
        "größe: 5",
    ] {
        assert_eq!(redact(text, &none), text);
    }
}

#[test]
fn declared_secrets_are_redacted_everywhere() {
    let mut secrets = Secrets::default();
    secrets.add("correct horse");
    secrets.add("correct horse battery");
    secrets.add("true");
    assert_eq!(
        redact("it is correct horse battery, or correct horse; true", &secrets),
        "it is [redacted], or [redacted]; true"
    );
    assert_eq!(format!("{secrets:?}"), "Secrets(2)");
}

#[test]
fn secret_names_are_recognized() {
    for name in
        ["GITHUB_TOKEN", "Authorization", "x-api-key", "DB_PASSWORD", "OPENAI_API_KEY", "MY_PAT", "KEY"]
    {
        assert!(is_secret(name, "abc"), "{name}");
    }
    for name in ["PATH", "KEYBOARD", "MODE", "HOST", "AUTHOR", "MONKEY"] {
        assert!(!is_secret(name, "abc"), "{name}");
    }
    let shown = redact_values(&BTreeMap::from([
        ("GITHUB_TOKEN".to_owned(), "abc".to_owned()),
        ("OTHER_TOKEN".to_owned(), "${OTHER_TOKEN}".to_owned()),
        ("FALLBACK_TOKEN".to_owned(), "${A:-abc}".to_owned()),
        ("MODE".to_owned(), "fast".to_owned()),
    ]));
    let values: Vec<&str> = shown.values().map(String::as_str).collect();
    assert_eq!(values, ["[redacted]", "[redacted]", "fast", "${OTHER_TOKEN}"]);
}

proptest! {
    #[test]
    fn declared_secret_is_never_printed(before in ".{0,20}", secret in "[a-z0-9é]{8,20}", after in ".{0,20}") {
        let mut secrets = Secrets::default();
        secrets.add(&secret);
        let text = redact(&format!("{before}{secret}{after}"), &secrets);
        prop_assert!(!text.contains(&secret));
    }
}
