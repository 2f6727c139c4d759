use proptest::prelude::*;

use super::*;

#[test]
fn sanitized_input_has_only_text() {
    let table = [
        ("plain", "plain"),
        ("two\nlines", "two\nlines"),
        ("two\r\nlines", "two\nlines"),
        ("two\rlines", "two\nlines"),
        ("a\ttab", "a\ttab"),
        ("!rm -rf /", "rm -rf /"),
        ("/clear", "clear"),
        ("$HOME", "HOME"),
        ("  \n\t ! /$ x", "x"),
        ("\u{a0}!x", "x"),
        ("\u{feff}/clear", "clear"),
        ("\u{200b}!\u{2060}$\u{202e}x", "x"),
        ("a \u{200d}!", "a \u{200d}!"),
        ("what! a/b $c", "what! a/b $c"),
        ("a\n/clear", "a\n/clear"),
        ("ends\n\n", "ends"),
        ("\x1b[201~rm", "rm"),
        ("a\x1b[201~\rrm", "a\nrm"),
        ("\u{9b}201~rm", "rm"),
        ("a\u{9b}201~b", "ab"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]0;title\x1b\\x", "x"),
        ("\u{9d}0;title\u{9c}x", "x"),
        ("a\x1bPq\x1b\\b", "ab"),
        ("\x1b]no end", "no end"),
        ("\x1b[no end\x1b", "o end"),
        ("\x1b(Bx", "x"),
        ("\x1b\x1b[Ax", "x"),
        ("\x1b[\x1b[201~x", "x"),
        ("\x1b[20\x1b[201~1~x", "1~x"),
        ("\x1b!/x", ""),
        ("a\x03\x04\x15\x7f\u{85}b", "ab"),
        ("", ""),
        ("!!!", ""),
        ("Grüße 🙂", "Grüße 🙂"),
    ];
    for (text, expected) in table {
        assert_eq!(sanitize_input(text), expected, "{text:?}");
    }
}

#[test]
fn paste_keeps_lines_between_its_markers() {
    assert_eq!(encode_keystrokes("a\n\tb", true), [b"\x1b[200~a\n\tb\x1b[201~".to_vec()]);
    assert_eq!(encode_keystrokes("a\n\tb", false), [b"a  b".to_vec()]);
    assert!(encode_keystrokes("", true).is_empty());
}

#[test]
fn completions_are_dismissed_by_a_space() {
    for (text, expected) in
        [("see @src", "see @src "), ("a #12", "a #12 "), ("@a b", "@a b"), ("plain", "plain"), ("", "")]
    {
        assert_eq!(dismiss_completion(text), expected);
    }
}

#[test]
fn long_text_is_split_at_character_boundaries() {
    let text = "ü".repeat(400);
    let writes = encode_keystrokes(&text, false);
    assert_eq!(writes.iter().map(Vec::len).collect::<Vec<_>>(), [500, 300]);
    let odd = format!("x{text}");
    let writes = encode_keystrokes(&odd, true);
    assert_eq!(writes.iter().map(Vec::len).collect::<Vec<_>>(), [499 + 6, 302 + 6]);
    assert!(writes.iter().all(|write| std::str::from_utf8(write).is_ok()));
}

proptest! {
    #[test]
    fn sanitized_text_has_no_controls(text in r"(\PC|[\x00-\x1f!/$]|\x1b\[20[01]~|\u{9b}){0,80}") {
        let plain = sanitize_input(&text);
        prop_assert!(plain.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{plain:?}");
        prop_assert!(!plain.starts_with(|c: char| c.is_whitespace() || TRIGGERS.contains(&c)));
        // Sanitizing is idempotent.
        prop_assert_eq!(sanitize_input(&plain), plain);
    }

    #[test]
    fn chunks_concatenate_to_the_text(text in r"\PC{0,900}", paste: bool) {
        let plain = sanitize_input(&text);
        let writes = encode_keystrokes(&plain, paste);
        let whole = String::from_utf8(writes.concat()).unwrap();
        prop_assert!(writes.iter().all(|write| !write.is_empty() && write.len() <= CHUNK + 12));
        let expected = match (paste, plain.is_empty()) {
            (true, false) => format!("{PASTE_START}{plain}{PASTE_END}"),
            _ => plain.clone(),
        };
        prop_assert_eq!(whole, expected);
    }

    #[test]
    fn without_paste_there_is_no_enter(text in r"(\PC|[\n\t]){0,80}") {
        let bytes = encode_keystrokes(&sanitize_input(&text), false).concat();
        prop_assert!(!bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b'\t' | 0x1b)));
    }
}
