use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

#[test]
fn overlap_is_symmetric() {
    let table = [
        ("src/**", "src/a.rs", true),
        ("src/**", "src/a/b/c.rs", true),
        ("src/**", "src", true),
        ("src/**", "srcs/a.rs", false),
        ("src", "src/a.rs", false),
        ("src/a.rs", "src/b.rs", false),
        ("src/*.rs", "src/a.rs", true),
        ("src/*.rs", "src/a/b.rs", false),
        ("src/*", "src/a/b.rs", false),
        ("src/*.rs", "src/a*", true),
        ("src/*.rs", "src/*.toml", false),
        ("a*b", "*ab*", true),
        ("a*c", "b*", false),
        ("**/a.rs", "src/**", true),
        ("**/a.rs", "**/b.rs", false),
        ("**", "anything/at/all", true),
        ("a/**/z", "a/z", true),
        ("a/**/z", "a/b/c/z", true),
        ("a/**/z", "a/b/c/y", false),
        ("a/**/b/**/c", "a/x/b/c", true),
        ("**/x/**", "y/**/z", true),
        ("SRC/A.rs", "src/a.RS", true),
        ("ÄRGER/*", "ärger/b", true),
        ("a?.rs", "ab.rs", true),
        ("a?.rs", "a.rs", false),
        ("[a-c].rs", "b.rs", true),
        ("[a-c].rs", "d.rs", false),
        ("[!a-c].rs", "b.rs", false),
        ("[!a-c].rs", "d.rs", true),
        ("[a-c].rs", "[c-e].rs", true),
        ("[a-b].rs", "[c-e].rs", false),
        ("[!a].rs", "[!b].rs", true),
        ("[]].rs", "].rs", true),
        ("[A-C].rs", "b.rs", true),
        ("***", "a", true),
    ];
    for (one, other, expected) in table {
        let (one, other) = (pattern(one), pattern(other));
        assert_eq!(one.overlaps(&other), expected, "{one} and {other}");
        assert_eq!(other.overlaps(&one), expected, "{other} and {one}");
        assert!(one.overlaps(&one) && other.overlaps(&other), "{one}, {other}");
    }
}

#[test]
fn literal_path_matches_itself() {
    assert!(Pattern::path("src/[id].tsx").overlaps(&pattern("src/**")));
    assert!(!Pattern::path("src/[id].tsx").overlaps(&pattern("src/i.tsx")));
    assert!(!Pattern::path("src/*.rs").overlaps(&pattern("src/a.rs")));
    assert!(Pattern::path("src/*.rs").overlaps(&pattern("src/*.rs")));
}

#[test]
fn invalid_pattern_is_refused() {
    for text in ["", "/", "/etc", "a//b", "a/./b", "*/../b", "a\\b", "a\0b", "a/[b", "a/", &"x".repeat(1025)]
    {
        assert!(Pattern::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn long_patterns_are_compared_quickly() {
    let many = |part: &str| pattern(&vec![part; 200].join("/"));
    assert!(many("**/a").overlaps(&many("**/a")) || !many("*a*").overlaps(&many("b")));
    let stars = pattern(&"*a".repeat(500));
    assert!(stars.overlaps(&pattern(&"a*".repeat(500))));
}
