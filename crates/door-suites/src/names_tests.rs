use super::{child_name, sanitize_name};

#[test]
fn scoped_package_becomes_one_component() {
    assert_eq!(child_name("context7").unwrap(), "context7");
    assert_eq!(child_name("@upstash/context7-mcp").unwrap(), "upstash-context7-mcp");
    assert_eq!(child_name("My Server").unwrap(), "My Server");
}

#[test]
fn path_like_names_are_rejected() {
    for name in [
        "",
        "..",
        "../x",
        "a/b",
        "@a/../b",
        "@a/b/c",
        "@/x",
        "a\\b",
        "a\0b",
        ".hidden",
        "con",
        "all",
        "a\u{202e}b",
        "/etc",
    ] {
        assert!(child_name(name).is_err(), "{name:?}");
    }
    assert_eq!(
        child_name("a/b").unwrap_err().to_string(),
        "'a/b' cannot be the name of a server: '/' is not allowed in a name; use letters, digits, space, '.', '_' and '-'"
    );
}

#[test]
fn imported_name_is_sanitized() {
    for (input, expected) in [
        ("@scope/pkg", Some("scope-pkg")),
        ("a/b c:d", Some("a-b c-d")),
        ("../../etc", Some("etc")),
        ("session", Some("mcp-session")),
        ("nul", Some("mcp-nul")),
        ("日本", None),
    ] {
        assert_eq!(sanitize_name(input).as_deref(), expected, "{input}");
        if let Some(name) = sanitize_name(input) {
            assert_eq!(child_name(&name).unwrap(), name);
        }
    }
}
