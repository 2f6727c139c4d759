use super::{ToolFilter, is_valid_tool_name};

fn rule(allow: Option<&[&str]>, deny: &[&str]) -> ToolFilter {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    ToolFilter::new(allow.map(owned).as_deref(), &owned(deny)).0
}

#[test]
fn names_and_globs_match_and_deny_wins() {
    let all = rule(None, &[]);
    assert!(all.offers("read_file") && all.offers("ns/tool"));
    let some = rule(Some(&["read_*", "list"]), &["read_secret*"]);
    assert!(some.offers("read_file") && some.offers("list"));
    assert!(!some.offers("read_secrets") && !some.offers("write_file") && !some.offers("listing"));
    assert!(!rule(Some(&[]), &[]).offers("anything"), "an empty list allows nothing");
    assert!(!rule(None, &["*"]).offers("a/b"));
    let denied = rule(None, &["Delete", "drop_*"]);
    assert!(!denied.offers("delete") && !denied.offers("DELETE") && !denied.offers("Drop_Table"));
    assert!(denied.offers("deleted"));
}

#[test]
fn no_spelling_bypasses_filter() {
    let rule = rule(Some(&["read"]), &["write"]);
    for name in
        ["Read", "READ", " read", "read ", "read\u{200b}", "ｒead", "re\u{0430}d", "x/../read", "read\0", ""]
    {
        assert!(!rule.offers(name), "{name:?}");
    }
    assert!(!is_valid_tool_name(&"x".repeat(257)));
    for hidden in ["a\u{e0041}", "a\u{ad}b", "a\nb", "<IMPORTANT>read", "a\u{fe00}\u{fe01}"] {
        assert!(!is_valid_tool_name(hidden), "{hidden:?}");
    }
    assert!(is_valid_tool_name("größe") && is_valid_tool_name("list[items]"));
}

#[test]
fn invalid_pattern_is_reported_and_denies_literally() {
    let (rule, broken) = ToolFilter::new(None, &["[a".to_owned()]);
    assert_eq!(broken, ["[a"]);
    assert!(!rule.offers("[a"));
    let (rule, _) = ToolFilter::new(Some(&["[a".to_owned()]), &[]);
    assert!(!rule.offers("a"));
}
