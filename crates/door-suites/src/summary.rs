//! Shortening of descriptions.

/// Shortens a text to at most `max_chars` characters.
///
/// Collapses white space, and ends after the last complete sentence that fits. If not even the first sentence fits, it
/// is cut between words where possible, and `…` is appended. Counts characters, not bytes, and never splits a grapheme.
pub(crate) fn summarise(text: &str, max_chars: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= max_chars {
        return text;
    }
    let sentences = sentence_ends(&text).take_while(|end| text[..*end].chars().count() <= max_chars);
    if let Some(end) = sentences.last() {
        return text[..end].to_owned();
    }
    truncate(&text, max_chars)
}

/// Returns the first sentence of a text, shortened if needed.
pub(crate) fn first_sentence(text: &str, max_chars: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = sentence_ends(&text).next().unwrap_or(text.len());
    summarise(&text[..end], max_chars)
}

/// Returns the end positions of the sentences in a text.
///
/// A sentence ends with `.`, `!` or `?`, followed by the end of the text or by a space and a character that is not
/// lower-case. Thus "e.g. this" and "v1.2" do not end a sentence. A full-width `。`, `！` or `？` always ends a sentence.
fn sentence_ends(text: &str) -> impl Iterator<Item = usize> {
    text.char_indices().filter_map(|(at, mark)| {
        let end = at + mark.len_utf8();
        match mark {
            '。' | '！' | '？' => return Some(end),
            '.' | '!' | '?' => {}
            _ => return None,
        }
        let mut rest = text[end..].chars();
        match (rest.next(), rest.next()) {
            (None, _) => Some(end),
            (Some(' '), Some(next)) if !next.is_lowercase() => Some(end),
            _ => None,
        }
    })
}

/// Truncates within a sentence and appends `…`, which counts towards `max_chars`.
fn truncate(text: &str, max_chars: usize) -> String {
    let Some(room) = max_chars.checked_sub(1) else { return String::new() };
    let end = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
    let end = char_boundary_before(text, end);
    let kept = &text[..end];
    // Drop a partial last word, unless the word is most of the text.
    let kept = match kept.rfind(' ') {
        Some(space) if space * 2 > kept.len() && !text[end..].starts_with(' ') => &kept[..space],
        _ => kept,
    };
    let kept = kept.trim_end_matches([' ', ',', ';', ':', '-', '–', '—', '(']);
    format!("{kept}…")
}

/// Returns the last position at or before `end` that does not split a grapheme.
fn char_boundary_before(text: &str, end: usize) -> usize {
    let mut end = end;
    loop {
        let next = text[end..].chars().next();
        let previous = text[..end].chars().next_back();
        let Some(previous) = previous else { return 0 };
        let is_torn = next.is_some_and(|next| {
            is_extending(next) || (is_regional_indicator(next) && ends_in_half_flag(&text[..end]))
        }) || previous == '\u{200d}';
        if !is_torn {
            return end;
        }
        end -= previous.len_utf8();
    }
}

/// Returns true for a character that belongs to the preceding one.
///
/// Such characters are combining marks, joiners, variation selectors and skin tones.
fn is_extending(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{93a}'..='\u{93c}' | '\u{93e}'..='\u{94f}' | '\u{e31}' | '\u{e34}'..='\u{e3a}'
        | '\u{e47}'..='\u{e4e}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{200d}'
        | '\u{20d0}'..='\u{20ff}' | '\u{302a}'..='\u{302f}' | '\u{3099}' | '\u{309a}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Returns true for a regional indicator. Two of them form a flag.
fn is_regional_indicator(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}')
}

/// Returns true if a text ends after the first regional indicator of a flag.
fn ends_in_half_flag(text: &str) -> bool {
    text.chars().rev().take_while(|c| is_regional_indicator(*c)).count() % 2 == 1
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
