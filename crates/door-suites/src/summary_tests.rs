use proptest::prelude::*;

use super::{first_sentence, is_extending, summarise};

#[test]
fn complete_sentences_are_unchanged() {
    let text = "Echoes the message. Use it to test e.g. framing in v1.2 servers. It also counts.";
    assert_eq!(summarise(text, 500), text);
    assert_eq!(summarise(text, 70), "Echoes the message. Use it to test e.g. framing in v1.2 servers.");
    assert_eq!(summarise(text, 30), "Echoes the message.");
    assert_eq!(first_sentence("Does   this.\n\nThen that.", 160), "Does this.");
    assert_eq!(first_sentence("No end here", 160), "No end here");
}

#[test]
fn truncation_is_between_words_with_ellipsis() {
    assert_eq!(summarise("Reads every file of the folder and its folders", 20), "Reads every file of…");
    assert_eq!(summarise("Donaudampfschifffahrtsgesellschaft", 10), "Donaudamp…");
    assert_eq!(summarise("anything", 0), "");
    assert_eq!(summarise("anything", 1), "…");
}

#[test]
fn graphemes_are_not_split() {
    let family = "👨‍👩‍👧‍👦";
    let text = family.repeat(40);
    let short = summarise(&text, 17);
    assert_eq!(short, format!("{}…", family.repeat(2)), "seven characters each, and sixteen have room");
    assert_eq!(summarise("e\u{301}e\u{301}e\u{301}", 4), "e\u{301}…");
    assert_eq!(summarise("🇩🇪🇫🇷🇮🇹🇪🇸", 6), "🇩🇪🇫🇷…");
    assert_eq!(summarise(&"😀".repeat(200), 160).chars().count(), 160);
}

proptest! {
    #[test]
    fn summary_is_bounded_and_idempotent(text in "\\PC{0,300}", max in 0_usize..200) {
        let short = summarise(&text, max);
        prop_assert!(short.chars().count() <= max);
        prop_assert_eq!(&short, &summarise(&text, max));
        if let Some(kept) = short.strip_suffix('…').filter(|_| !text.ends_with('…')) {
            let whole = text.split_whitespace().collect::<Vec<_>>().join(" ");
            prop_assert!(whole.starts_with(kept));
            // Trailing separators may be trimmed after the cut, so only an untrimmed cut is conclusive.
            let next = whole[kept.len()..].chars().next();
            prop_assert!(kept.is_empty() || !next.is_some_and(is_extending));
        }
    }
}
