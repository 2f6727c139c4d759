use super::*;

#[test]
fn deprecated_id_is_mentioned() {
    assert!(is_mentioned("ask @claude-1 about it", "claude") && is_mentioned("@Codex-1", "codex"));
    assert!(!is_mentioned("@claude-10", "claude") && !is_mentioned("@qc-1", "qc"));
    assert!(begins_with("gemini-1, please", "gemini"));
}

#[test]
fn mention_needs_the_complete_id() {
    let table = [
        ("@claude please look", true),
        ("please look, @claude", true),
        ("please look (@claude).", true),
        ("@Claude please look", true),
        ("@codex @claude please look", true),
        ("@claude-2 please look", false),
        ("@claudette says", false),
        ("claudette says", false),
        ("claude says", false),
        ("mail me at me@claude", false),
        ("mail claude@claude.example", false),
        ("first.last@claude", false),
        ("@claude@example.org", false),
        ("@cla\u{200d}ude", false),
        ("@claude\u{200d}x", false),
        ("@claudé", false),
        ("@ claude", false),
        ("`@claude` is how one writes it", false),
        ("`code` @claude `code`", true),
        ("a lone ` and @claude", true),
        ("> @claude said that\nand I agree", false),
        ("> quoted\n@claude what do you say?", true),
        ("```\n@claude\n```\ndone", false),
        ("```rust\n// @claude\n```\n@claude see above", true),
        ("~~~\n```\n@claude\n~~~", false),
        ("````\n```\n@claude\n````", false),
        ("```\n@claude\n```rust\n@claude\n```", false),
        ("```\ncode\n`````\n@claude", true),
        ("```code``` @claude", true),
        ("``@claude`` is how one writes it", false),
        ("``a ` b @claude`` and", false),
        ("`` a ` b ` @claude", true),
        ("see https://example.org/@claude/1", false),
        ("see https://example.org/1 @claude", true),
        ("see https://example.org/@codex/@claude", false),
        ("@codex/@claude please", true),
        ("", false),
    ];
    for (text, expected) in table {
        assert_eq!(is_mentioned(text, "claude"), expected, "{text:?}");
    }
    assert!(is_mentioned("@qc-1: ok?", "qc-1"));
    assert!(!is_mentioned("@qc-10: ok?", "qc-1"));
}

/// A message of the largest size: with a search back or ahead at every mark, each of these takes minutes.
#[test]
fn adversarial_texts_are_scanned_fast() {
    let runs: String = (1..1400).map(|length| "`".repeat(length) + " ").collect();
    for text in ["@".repeat(1 << 20), "/@claudia".repeat(1 << 17), "//@claude.x".repeat(1 << 16), runs] {
        assert!(!is_mentioned(&format!("https://example.org{text}"), "claude"));
        assert!(is_mentioned(&format!("{text} @claude"), "claude"));
    }
}

#[test]
fn text_starts_with_complete_id() {
    for (text, expected) in [
        ("codex, please", true),
        ("Codex: please", true),
        ("  codex", true),
        ("CODEX!?", true),
        ("codex\nplease", true),
        ("codex says hello", true),
        ("codex,please", true),
        ("codex:please", true),
        ("codex;do", true),
        ("codex?do it", true),
        ("codex!do it", true),
        ("codex\u{2026}", true),
        ("codex\u{2026}do it", true),
        ("codex\u{2014}do", true),
        ("codex\u{ff0c}\u{8bf7}", true),
        ("codex\u{ff1a}\u{8bf7}\u{770b}", true),
        ("codex\u{3002}\u{8bf7}\u{770b}", true),
        ("codex\u{a0}please", true),
        ("codex). please", true),
        ("codex_x please", false),
        ("codex.rs is broken", false),
        ("codex...please", false),
        ("codex\u{2019}s idea", false),
        ("codex\u{2011}2 please", false),
        ("codex\u{ff3f}x please", false),
        ("codex\u{e9} please", false),
        ("codex\u{301} please", false),
        ("codex\u{8bf7}\u{770b}", false),
        ("codexes", false),
        ("codex's idea", false),
        ("codex.md is missing", false),
        ("codex/src is empty", false),
        ("codex@example.org wrote", false),
        ("codex\u{200d}x please", false),
        ("`codex` please", false),
        ("> codex, please", false),
        ("```\ncodex, please\n```", false),
        ("(codex) please", false),
        ("codex-2 please", false),
        ("dear codex", false),
        ("", false),
    ] {
        assert_eq!(begins_with(text, "codex"), expected, "{text:?}");
    }
}

proptest::proptest! {
    #[test]
    fn separator_ends_id_whatever_follows(
        agent in "[a-z][a-z0-9-]{0,8}",
        separator in "[,:;!?\u{2026}\u{2014}\u{3001}\u{3002}\u{ff0c}\u{ff1a}]",
        rest in ".{0,20}",
    ) {
        let text = format!("{agent}{separator}{rest}");
        proptest::prop_assert!(begins_with(&text, &agent), "{text:?}");
    }

    #[test]
    fn word_character_goes_on_with_id(agent in "[a-z][a-z0-9-]{0,8}", next in "[a-z0-9_@/'%+-]", rest in ".{0,20}") {
        proptest::prop_assume!(crate::ids::deprecated_id(&agent).is_none());
        let text = format!("{agent}{next}{rest}");
        proptest::prop_assert!(!begins_with(&text, &agent), "{text:?}");
    }

    #[test]
    fn any_text_is_scanned(text in ".{0,200}", agent in "[a-z][a-z0-9-]{0,8}") {
        let _ = (is_mentioned(&text, &agent), begins_with(&text, &agent));
        let marked = format!("{text}\n@{agent}");
        if !text.contains("```") && !text.contains("~~~") {
            proptest::prop_assert!(is_mentioned(&marked, &agent));
        }
    }
}
