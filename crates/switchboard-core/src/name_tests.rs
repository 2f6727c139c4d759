use super::*;

#[test]
fn names_people_use_are_accepted() {
    for name in ["codex", "Claude Code", "coder 1", "qc-1", "gemini_2.5", "a", "human", "console", "com10"] {
        assert_eq!(Name::parse(name).map(|n| n.to_string()), Ok(name.to_owned()));
    }
    assert!(Name::parse(&"x".repeat(128)).is_ok());
}

#[test]
fn hostile_names_are_refused() {
    let device = |name: &str| NameError::Device { name: name.into() };
    let shape = |name: &str| NameError::Shape { name: name.into() };
    let character = |character| NameError::Character { character };
    let reserved = |name: &str| NameError::Reserved { name: name.into() };
    let long = "x".repeat(300);
    let table = [
        ("", NameError::Empty),
        (".", shape(".")),
        ("..", shape("..")),
        (".hidden", shape(".hidden")),
        ("x.", shape("x.")),
        ("x ", shape("x ")),
        (" x", shape(" x")),
        ("a..b", shape("a..b")),
        ("a/b", character('/')),
        ("a\\b", character('\\')),
        ("C:x", character(':')),
        ("%2e%2e", character('%')),
        ("a\0b", character('\0')),
        ("a\nb", character('\n')),
        ("a\u{202e}b", character('\u{202e}')),
        ("\u{feff}a", character('\u{feff}')),
        ("café", character('é')),
        ("cafe\u{301}", character('\u{301}')),
        ("аlpha", character('а')),
        ("CON", device("CON")),
        ("nul.txt", device("nul.txt")),
        ("Com1", device("Com1")),
        ("lpt9.log", device("lpt9.log")),
        ("aux .txt", device("aux .txt")),
        ("all", reserved("all")),
        ("Broadcast", reserved("Broadcast")),
        ("session", reserved("session")),
        ("user", reserved("user")),
        ("sidebar", reserved("sidebar")),
        (long.as_str(), NameError::TooLong { bytes: 300 }),
    ];
    for (text, expected) in table {
        assert_eq!(Name::parse(text), Err(expected), "{text:?}");
    }
}

#[test]
fn invisible_character_is_escaped_in_error() {
    let error = Name::parse("a\u{202e}b").unwrap_err().to_string();
    assert!(error.contains("\\u{202e}"), "{error}");
}

#[test]
fn names_ignore_case() {
    let (a, b) = (Name::parse("Codex").unwrap(), Name::parse("codex").unwrap());
    assert_eq!(a, b);
    assert_eq!(a.cmp(&b), Ordering::Equal);
    assert_eq!(a.key(), b.key());
    assert_eq!(a.as_str(), "Codex");
}

proptest::proptest! {
    #[test]
    fn accepted_name_is_one_path_component(text in ".{0,140}") {
        if let Ok(name) = Name::parse(&text) {
            let path = std::path::Path::new(name.as_str());
            let parts: Vec<_> = path.components().collect();
            proptest::prop_assert_eq!(parts, vec![std::path::Component::Normal(text.as_ref())]);
        }
    }
}
