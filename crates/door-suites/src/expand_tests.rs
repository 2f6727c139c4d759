use proptest::prelude::*;

use super::expand;

fn expanded(text: &str) -> Result<String, String> {
    let lookup = |name: &str| match name {
        "HOME" => Some("/home/me".to_owned()),
        "EMPTY" => Some(String::new()),
        "NESTED" => Some("${HOME}".to_owned()),
        _ => None,
    };
    expand(text, &lookup).map_err(|error| error.to_string())
}

#[test]
fn variables_and_defaults_expand_once() {
    for (text, expected) in [
        ("plain", "plain"),
        ("${HOME}/x", "/home/me/x"),
        ("a${HOME}b${EMPTY}c", "a/home/mebc"),
        ("${NONE:-y}", "y"),
        ("${NONE:-}", ""),
        ("${EMPTY:-y}", "y"),
        ("${HOME:-y}", "/home/me"),
        ("${NONE:-a:-b}", "a:-b"),
        ("${NESTED}", "${HOME}"),
        ("$HOME $1 $", "$HOME $1 $"),
        ("ü${HOME}ß", "ü/home/meß"),
    ] {
        assert_eq!(expanded(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn unset_variable_is_named() {
    assert_eq!(
        expanded("Bearer ${TOKEN}").unwrap_err(),
        "needs the variable TOKEN, which is not set; set it, or write ${TOKEN:-default}"
    );
    for text in ["${env:HOME}", "${}", "${1}", "${A-B}", "${HOME", "${HO ME}"] {
        let error = expanded(text).unwrap_err();
        assert!(error.contains("which is not a variable reference"), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn arbitrary_text_expands_or_fails(text in "[${}:a-zÄ -]{0,40}") {
        if let Ok(out) = expanded(&text) {
            prop_assert_eq!(out.contains("${"), false);
        }
    }
}
