//! Escaping that keeps a JSON text on one line (NDJSON) for every reader.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes characters of a JSON text that some readers treat as a line break or a control character.
///
/// JSON requires escapes only below U+0020. Readers that split at Unicode line breaks also split at U+0085, U+2028 and
/// U+2029; DEL and the C1 controls affect terminals. All of these can occur only within strings.
pub fn escape_json_line(json: &str) -> Cow<'_, str> {
    let is_odd = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}');
    // Fast path: a text without any first byte of an escaped character's UTF-8 encoding needs no escaping.
    if !json.bytes().any(|byte| matches!(byte, 0x7f | 0xc2 | 0xe2)) || !json.contains(is_odd) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 32);
    for c in json.chars() {
        if is_odd(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn odd_characters_are_escaped() {
        let text = "a\u{7f}b\u{85}c\u{9b}d\u{2028}e\u{2029}f\u{a0}g é 日本";
        let escaped = escape_json_line(&json!(text).to_string()).into_owned();
        assert_eq!(escaped, "\"a\\u007fb\\u0085c\\u009bd\\u2028e\\u2029f\u{a0}g é 日本\"");
        assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), json!(text));
    }

    proptest! {
        #[test]
        fn value_survives_on_one_line(text in "(?s).{0,40}|[\\x7f-\\u{9f}\\u{2028}\\u{2029}\\r\\n\\x0b\\x0c\\x1c-\\x1e\\\\\"a]{0,20}") {
            let json = json!({ text.clone(): [text] });
            let line = escape_json_line(&json.to_string()).into_owned();
            prop_assert!(!line.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')), "{:?}", line);
            prop_assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), json);
        }
    }
}
