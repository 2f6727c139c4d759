//! Makes a description short.

/// Shortens a text to at most `max_chars` characters.
///
/// White space is collapsed. What is too long ends after the last whole sentence that fits; when not even
/// the first does, it is cut between words where possible and ends with `…`. Characters are counted, not
/// bytes, and a mark is never parted from the letter that it belongs to.
pub(crate) fn summarise(text: &str, max_chars: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= max_chars {
        return text;
    }
    let sentences = sentence_ends(&text).take_while(|end| text[..*end].chars().count() <= max_chars);
    if let Some(end) = sentences.last() {
        return text[..end].to_owned();
    }
    cut(&text, max_chars)
}

/// The first sentence of a text, shortened if it is too long by itself.
pub(crate) fn first_sentence(text: &str, max_chars: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = sentence_ends(&text).next().unwrap_or(text.len());
    summarise(&text[..end], max_chars)
}

/// Where sentences end: after a full stop, an exclamation or a question mark that a space and no small letter
/// follows. So "e.g. this" and "v1.2" are not taken for ends.
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

/// Cuts within a sentence, and says so with `…`, which counts.
fn cut(text: &str, max_chars: usize) -> String {
    let Some(room) = max_chars.checked_sub(1) else { return String::new() };
    let end = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
    let end = whole_before(text, end);
    let kept = &text[..end];
    // Half of a word is worse than none, unless the word is nearly all there is.
    let kept = match kept.rfind(' ') {
        Some(space) if space * 2 > kept.len() && !text[end..].starts_with(' ') => &kept[..space],
        _ => kept,
    };
    let kept = kept.trim_end_matches([' ', ',', ';', ':', '-', '–', '—', '(']);
    format!("{kept}…")
}

/// The last place at or before `end` where what a reader sees as one character is not torn apart.
fn whole_before(text: &str, end: usize) -> usize {
    let mut end = end;
    loop {
        let next = text[end..].chars().next();
        let previous = text[..end].chars().next_back();
        let Some(previous) = previous else { return 0 };
        let is_torn = next
            .is_some_and(|next| belongs_to_previous(next) || (is_flag(next) && torn_flag(&text[..end])))
            || previous == '\u{200d}';
        if !is_torn {
            return end;
        }
        end -= previous.len_utf8();
    }
}

/// Combining marks, joiners, variation selectors and skin tones: nothing without what stands before them.
fn belongs_to_previous(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{93a}'..='\u{93c}' | '\u{93e}'..='\u{94f}' | '\u{e31}' | '\u{e34}'..='\u{e3a}'
        | '\u{e47}'..='\u{e4e}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{200d}'
        | '\u{20d0}'..='\u{20ff}' | '\u{302a}'..='\u{302f}' | '\u{3099}' | '\u{309a}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Letters of flags come in pairs.
fn is_flag(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}')
}

/// Whether a text ends after the first letter of a flag.
fn torn_flag(text: &str) -> bool {
    text.chars().rev().take_while(|c| is_flag(*c)).count() % 2 == 1
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
