use proptest::prelude::*;

use super::{belongs_to_previous, first_sentence, summarise};

#[test]
fn whole_sentences_stay_and_nothing_is_added_to_them() {
    let text = "Echoes the message. Use it to test e.g. framing in v1.2 servers. It also counts.";
    assert_eq!(summarise(text, 500), text);
    assert_eq!(summarise(text, 70), "Echoes the message. Use it to test e.g. framing in v1.2 servers.");
    assert_eq!(summarise(text, 30), "Echoes the message.");
    assert_eq!(first_sentence("Does   this.\n\nThen that.", 160), "Does this.");
    assert_eq!(first_sentence("No end here", 160), "No end here");
}

#[test]
fn a_cut_within_a_sentence_is_between_words_and_says_so() {
    assert_eq!(summarise("Reads every file of the folder and its folders", 20), "Reads every file of…");
    assert_eq!(summarise("Donaudampfschifffahrtsgesellschaft", 10), "Donaudamp…");
    assert_eq!(summarise("anything", 0), "");
    assert_eq!(summarise("anything", 1), "…");
}

#[test]
fn suites_p20_what_is_seen_as_one_character_is_not_torn() {
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
    fn never_longer_than_asked_never_a_lone_mark_and_always_the_same(text in "\\PC{0,300}", max in 0_usize..200) {
        let short = summarise(&text, max);
        prop_assert!(short.chars().count() <= max);
        prop_assert_eq!(&short, &summarise(&text, max));
        if let Some(kept) = short.strip_suffix('…').filter(|_| !text.ends_with('…')) {
            let whole = text.split_whitespace().collect::<Vec<_>>().join(" ");
            prop_assert!(whole.starts_with(kept));
            // Trailing separators may be dropped after the cut, so only an untrimmed cut says something.
            let next = whole[kept.len()..].chars().next();
            prop_assert!(kept.is_empty() || !next.is_some_and(belongs_to_previous));
        }
    }
}
