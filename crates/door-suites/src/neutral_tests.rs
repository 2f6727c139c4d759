use proptest::prelude::*;

use super::{Flag, neutral};

fn found(text: &str) -> (String, Vec<Flag>) {
    let neutral = neutral(text);
    (neutral.text, neutral.flags)
}

#[test]
fn what_is_harmless_comes_back_as_it_was() {
    for text in [
        "",
        "Reads a file.\nSecond line.\tTab",
        "größer, 日本語, עברית, نص, हिन्दी क्‍ष",
        "👩‍👩‍👧 family, ❤️ heart, 1️⃣",
        "a < b and c > d, Vec<String>, <path>, <div class=\"x\">, [context]",
    ] {
        assert_eq!(found(text), (text.to_owned(), vec![]), "{text}");
    }
}

#[test]
fn suites_p4_what_cannot_be_seen_is_taken_out_and_named() {
    for (text, expected, flag) in [
        ("ig\u{200b}nore", "ignore", Flag::Hidden),
        ("a\u{feff}b\u{2060}c\u{ad}", "abc", Flag::Hidden),
        ("a\u{200d}b", "ab", Flag::Hidden),
        ("abc\u{202e}fed\u{202c}", "abcfed", Flag::Bidi),
        ("x\u{2066}y\u{2069}\u{200f}", "xy", Flag::Bidi),
        ("hi\u{e0001}\u{e0041}\u{e0042}\u{e007f}", "hi", Flag::TagBlock),
        ("a\u{fe00}\u{fe01}\u{fe02}\u{fe03}", "a\u{fe00}", Flag::Variations),
        ("a\u{e0100}\u{e01ef}", "a", Flag::Variations),
        ("a\u{0}b\u{8}c\u{7f}", "abc", Flag::Control),
        ("shown\rhidden", "shownhidden", Flag::Control),
        ("\u{1b}[31mred\u{1b}[0m", "red", Flag::Escape),
        ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{1b}\\!", "link!", Flag::Escape),
        ("\u{1b}[1;2;3", "", Flag::Escape),
        ("\u{9b}31mred", "red", Flag::Escape),
        ("a\u{1b}(Bb\u{1b}cc", "abc", Flag::Escape),
    ] {
        assert_eq!(found(text), (expected.to_owned(), vec![flag]), "{text:?}");
    }
    assert_eq!(found("a\r\nb"), ("a\nb".to_owned(), vec![]));
}

#[test]
fn suites_p4_markup_that_poses_as_an_instruction_is_made_plain() {
    for (text, expected) in [
        ("<IMPORTANT>do it</IMPORTANT>", "‹IMPORTANT›do it‹/IMPORTANT›"),
        ("<system>x</system >", "‹system›x‹/system ›"),
        ("< System-Reminder level=\"9\">", "‹ System-Reminder level=\"9\"›"),
        ("<|system|>", "‹|system|›"),
        ("<x:invoke name=\"a\">", "‹x:invoke name=\"a\"›"),
        ("<function_calls>", "‹function_calls›"),
        ("[INST] do [/INST]", "‹INST› do ‹/INST›"),
        ("\u{ff1c}important\u{ff1e}", "‹important›"),
        ("a <b <important> c", "a <b ‹important› c"),
    ] {
        assert_eq!(found(text), (expected.to_owned(), vec![Flag::Markup]), "{text}");
    }
    // Hidden characters cannot keep a tag from being seen.
    assert_eq!(found("<IMP\u{200b}ORTANT>"), ("‹IMPORTANT›".to_owned(), vec![Flag::Hidden, Flag::Markup]));
}

proptest! {
    #[test]
    fn what_was_made_harmless_is_harmless(text in any::<String>()) {
        let once = neutral(&text);
        let twice = neutral(&once.text);
        prop_assert_eq!(&twice.text, &once.text);
        prop_assert_eq!(twice.flags, Vec::<Flag>::new());
    }
}
