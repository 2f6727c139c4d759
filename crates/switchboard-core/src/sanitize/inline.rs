//! One-line forms of untrusted text, for use within Switchboard's own sentences.

use super::sanitize;

/// Maximum number of characters of an inline text: enough for an error message or a title.
const LONGEST: usize = 300;

/// Sanitizes a text to one line of at most 300 characters.
pub fn sanitize_inline(text: &str) -> String {
    let mut words = String::new();
    for word in sanitize(text).split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    if words.chars().nth(LONGEST).is_none() {
        return words;
    }
    let end = words.char_indices().nth(LONGEST - 1).map_or(words.len(), |(end, _)| end);
    format!("{}…", &words[..end])
}

/// Quotes an untrusted text for use within a sentence: sanitized, on one line, in double quotes.
pub fn quote_inline(text: &str) -> String {
    format!("\"{}\"", sanitize_inline(text).replace(is_double_quote, "'"))
}

/// Renders an untrusted label: bare if it is one plain word, otherwise in quotes.
pub fn label_inline(text: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '@' | '#' | '+');
    if !text.is_empty() && text.len() <= LONGEST && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        quote_inline(text)
    }
}

fn is_double_quote(c: char) -> bool {
    matches!(c, '"' | '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{2033}' | '\u{ff02}')
}
