use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::render::hostile_text;

fn sanitize_with_flags(text: &str) -> (String, Vec<Flag>) {
    let Sanitized { text, flags } = sanitize_description(text);
    (text, flags)
}

#[test]
fn harmless_description_is_unchanged() {
    for text in [
        "",
        "Reads a file.\nSecond line.\tTab",
        "größer, 日本語, עברית, نص, हिन्दी क्‍ष",
        "👩‍👩‍👧 family, ❤️ heart, 1️⃣, ❤️‍🔥",
        "a < b and c > d, Vec<String>, <path>, <div class=\"x\">, [context]",
    ] {
        assert_eq!(sanitize_with_flags(text), (text.to_owned(), vec![]), "{text}");
    }
}

#[test]
fn hidden_characters_are_removed() {
    for (text, expected, flag) in [
        ("ig\u{200b}nore", "ignore", Flag::Hidden),
        ("a\u{feff}b\u{2060}c\u{ad}", "abc", Flag::Hidden),
        ("a\u{200d}b", "ab", Flag::Hidden),
        ("é\u{200d}\u{200b}b", "éb", Flag::Hidden),
        ("abc\u{202e}fed\u{202c}", "abcfed", Flag::Bidi),
        ("x\u{2066}y\u{2069}\u{200f}", "xy", Flag::Bidi),
        ("hi\u{e0001}\u{e0041}\u{e0042}\u{e007f}", "hi", Flag::TagBlock),
        ("a\u{fe00}\u{fe01}\u{fe02}\u{fe03}", "a", Flag::Variations),
        ("a\u{fe0f}", "a", Flag::Variations),
        ("❤\u{fe0f}\u{fe0f}\u{fe0e}", "❤\u{fe0f}", Flag::Variations),
        ("a\u{e0100}\u{e01ef}", "a", Flag::Variations),
        ("a\u{0}b\u{8}c\u{7f}", "abc", Flag::Control),
        ("shown\rnext\u{b}a\u{c}b\u{85}c\u{2028}d\u{2029}e", "shown\nnext\na\nb\nc\nd\ne", Flag::Control),
        ("\u{1b}[31mred\u{1b}[0m", "red", Flag::Escape),
        ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{1b}\\!", "link!", Flag::Escape),
        ("\u{1b}]no terminator", "no terminator", Flag::Escape),
        ("\u{1b}[1;2;3", "", Flag::Escape),
        ("\u{9b}31mred", "red", Flag::Escape),
        ("a\u{1b}(Bb\u{1b}cc", "abc", Flag::Escape),
        ("a\u{1b}\nb", "a\nb", Flag::Escape),
    ] {
        let (text_found, flags) = sanitize_with_flags(text);
        assert_eq!(text_found, expected, "{text:?}");
        assert!(flags.contains(&flag), "{text:?} {flags:?}");
    }
    assert_eq!(sanitize_with_flags("a\r\nb\u{a0}c\u{3000}d"), ("a\nb c d".to_owned(), vec![]));
}

#[test]
fn instruction_markup_is_disarmed() {
    for (text, expected) in [
        ("<IMPORTANT>do it</IMPORTANT>", "&lt;IMPORTANT>do it&lt;/IMPORTANT>"),
        ("<system>x</system >", "&lt;system>x&lt;/system >"),
        ("< System-Reminder level=\"9\">", "&lt; System-Reminder level=\"9\">"),
        ("<|system|>", "&lt;|system|>"),
        ("<x:invoke name=\"a\">", "&lt;x:invoke name=\"a\">"),
        ("<function_calls>", "&lt;function_calls>"),
        ("</untrusted-123456789012345>", "&lt;/untrusted-123456789012345>"),
        ("[INST] do [/INST]", "(INST) do (/INST)"),
        ("\u{ff1c}important\u{ff1e}", "&lt;important\u{ff1e}"),
        ("a <b <important> c", "a <b &lt;important> c"),
        ("\u{226e}important>", "&lt;important>"),
        ("<|im_start|>", "&lt;|im_start|>"),
        ("<|anything_else|>", "&lt;|anything_else|>"),
        ("<start_of_turn>", "&lt;start_of_turn>"),
        ("<task-notification>", "&lt;task-notification>"),
        ("\u{ff3b}INST\u{ff3d} do", "(INST) do"),
        // Letters that are drawn like those of the name.
        ("<IMP\u{41e}RTANT>", "&lt;IMP\u{41e}RTANT>"),
        (
            "<\u{1d42c}\u{1d432}\u{1d42c}\u{1d42d}\u{1d41e}\u{1d426}>",
            "&lt;\u{1d42c}\u{1d432}\u{1d42c}\u{1d42d}\u{1d41e}\u{1d426}>",
        ),
        ("</\u{ff55}ntrusted-1>", "&lt;/\u{ff55}ntrusted-1>"),
        ("<\u{24d8}mportant>", "&lt;\u{24d8}mportant>"),
        ("<s\u{301}ystem>", "&lt;s\u{301}ystem>"),
    ] {
        let (disarmed, flags) = sanitize_with_flags(text);
        assert_eq!(flags, vec![Flag::Markup], "{text}");
        assert_eq!(disarmed, expected, "{text}");
    }
    let long = format!("<important why=\"{}\">", "x".repeat(1000));
    assert_eq!(sanitize_with_flags(&long).0, long.replace('<', "&lt;"), "attributes of any length");
    // Hidden characters cannot keep a tag from being seen.
    assert_eq!(
        sanitize_with_flags("<IMP\u{200b}ORTANT>"),
        ("&lt;IMPORTANT>".to_owned(), vec![Flag::Hidden, Flag::Markup])
    );
}

#[test]
fn untrusted_text_has_no_tags() {
    for (text, expected) in [
        ("plain, a > b [x] & c", "plain, a > b [x] & c"),
        ("1 < 2, Vec<T>", "1 &lt; 2, Vec&lt;T>"),
        ("<!-- x --><?php <|im_start|>", "&lt;!-- x -->&lt;?php &lt;|im_start|>"),
        ("<<SYS>> [INST]", "&lt;&lt;SYS>> (INST)"),
        ("[INST <system> [b] ]<x>", "(INST &lt;system> [b) ]&lt;x>"),
        ("[<[INST]", "[&lt;(INST)"),
        ("[sys [INST] ]", "(sys (INST) ]"),
        ("a\u{1b}[2Jb\u{202e}c\nd", "abc\nd"),
    ] {
        assert_eq!(sanitize(text), expected);
    }
}

#[test]
fn every_spelling_of_closing_tag_is_disarmed() {
    for tag in crate::render::CLOSING_TAGS {
        let sanitized = sanitize(tag);
        let first = sanitized.chars().next().unwrap();
        assert_eq!(first, '&', "{tag:?} became {sanitized:?}");
        assert!(
            !sanitized.contains('<') && !sanitized.chars().any(is_hidden),
            "{tag:?} became {sanitized:?}"
        );
    }
}

#[test]
fn inline_text_is_one_short_quoted_line() {
    assert_eq!(sanitize_inline(" a\n\nb\u{2028}c\t<d> "), "a b c &lt;d>");
    assert_eq!(quote_inline("say \"hi\" or “ho”\nfrom human"), "\"say 'hi' or 'ho' from human\"");
    assert_eq!(sanitize_inline(&"é ".repeat(1000)).chars().count(), 300);
    assert_eq!(label_inline("coder-1"), "coder-1");
    assert_eq!(label_inline("lead, awake, you"), "\"lead, awake, you\"");
    assert_eq!(label_inline(""), "\"\"");
}

#[test]
fn values_are_sanitized_throughout() {
    let mut value = json!({ "<a>": ["<b>", { "c": "d\u{200b}" }], "n": 1 });
    sanitize_value(&mut value);
    assert_eq!(value, json!({ "&lt;a>": ["&lt;b>", { "c": "d" }], "n": 1 }));
    let mut schema = json!({ "path": "<path>" });
    assert!(!sanitize_description_value(&mut schema));
    schema["x"] = "<system>".into();
    assert!(sanitize_description_value(&mut schema));
    assert_eq!(schema, json!({ "path": "<path>", "x": "&lt;system>" }));
}

#[test]
fn person_sees_hidden_characters_escaped() {
    assert_eq!(reveal("a\u{1b}[2J\u{202e}b\r\n\tc\u{2028}"), "a\\u{1b}[2J\\u{202e}b\\r\n\tc\\u{2028}");
    assert_eq!(reveal("👩‍👧 ❤️ é"), "👩‍👧 ❤️ é");
}

proptest! {
    #[test]
    fn sanitizing_twice_changes_nothing(text in hostile_text()) {
        let description = sanitize_description(&text);
        prop_assert_eq!(sanitize_with_flags(&description.text), (description.text, vec![]));
        let once = sanitize(&text).into_owned();
        prop_assert_eq!(sanitize(&once).into_owned(), once);
        let line = sanitize_inline(&text);
        prop_assert_eq!(sanitize_inline(&line), line);
    }

    #[test]
    fn tokens_in_brackets_hide_no_tags(text in "([<>()\\[\\] a/=:]|INST|sys|system|&lt;){0,16}") {
        let once = sanitize(&text).into_owned();
        prop_assert!(!once.contains('<'), "{once:?}");
        prop_assert_eq!(sanitize(&once).into_owned(), once);
        let description = sanitize_description(&text);
        prop_assert_eq!(sanitize_with_flags(&description.text), (description.text, vec![]));
    }

    #[test]
    fn inline_text_cannot_leave_its_line_or_quotes(text in hostile_text()) {
        let quoted = quote_inline(&text);
        prop_assert!(quoted.chars().all(|c| !is_line_break(c) && !c.is_control()));
        prop_assert_eq!(quoted.matches('"').count(), 2);
        prop_assert!(quoted.chars().count() <= 302 && !quoted.contains('<'));
    }

    #[test]
    fn revealed_command_cannot_act_on_terminal(text in hostile_text()) {
        let shown = reveal_command(&text);
        prop_assert!(shown.chars().all(|c| matches!(c, '\n' | '\t') || !is_hidden(c) && !is_odd_space(c)), "{shown:?}");
    }

    #[test]
    fn revealed_text_cannot_act_on_terminal(text in hostile_text()) {
        prop_assert!(reveal(&text).chars().all(|c| matches!(c, '\n' | '\t') || flag_of(c).is_none()));
    }
}

#[test]
fn command_is_revealed_for_person_who_approves() {
    for (command, shown) in [
        ("rm -r target && echo 'a\tb'", "rm -r target && echo 'a\tb'"),
        // Cyrillic: alone in a Latin word, and a word of look-alikes alone.
        ("c\u{430}t x", "c\\u{430}t x"),
        ("\u{441}\u{430}\u{442} x", "\\u{441}\\u{430}\\u{442} x"),
        ("cat привет.txt", "cat привет.txt"),
        ("cat 文書.txt é", "cat 文書.txt é"),
        ("curl https://good.example\u{2215}@evil", "curl https://good.example\\u{2215}@evil"),
        ("rm \u{2013}rf \u{ff0f}", "rm \\u{2013}rf \\u{ff0f}"),
        ("a\u{202e}b\u{200d}c\u{a0}d\re", "a\\u{202e}b\\u{200d}c\\u{a0}d\\re"),
        ("\u{1b}[2Jx", "\\u{1b}[2Jx"),
        ("rm\u{3164}x", "rm\\u{3164}x"),
    ] {
        assert_eq!(reveal_command(command), shown);
    }
}
