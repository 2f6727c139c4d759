//! Detection of messages that are for an agent ("Detection Logic"), by exact tokens.

use std::collections::HashMap;

use crate::ids::deprecated_id;

/// Returns true if a text mentions an agent as `@agent`, in any letter case.
///
/// Only the whole id counts: `@qc-1` does not match `@qc-10`. Code, quoted lines and e-mail addresses are ignored. A
/// deprecated id counts as well.
pub fn is_mentioned(text: &str, agent: &str) -> bool {
    mentions(text, agent) || deprecated_id(agent).is_some_and(|old| mentions(text, old))
}

fn mentions(text: &str, agent: &str) -> bool {
    let mut fence: Option<Fence<'_>> = None;
    text.lines().any(|line| {
        let marker = Fence::at(line.trim());
        match (&fence, marker) {
            (Some(opened), marker) => {
                if marker.is_some_and(|marker| marker.closes(opened)) {
                    fence = None;
                }
                false
            }
            (None, Some(marker)) if marker.opens() => {
                fence = Some(marker);
                false
            }
            (None, _) => {
                !line.trim_start().starts_with('>')
                    && outside_code(line).iter().any(|part| has_mention(part, agent))
            }
        }
    })
}

/// Line that may open or close a fenced code block: three or more of one mark, and the rest.
struct Fence<'l> {
    mark: char,
    length: usize,
    rest: &'l str,
}

impl<'l> Fence<'l> {
    fn at(line: &'l str) -> Option<Self> {
        let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let rest = line.trim_start_matches(mark);
        let length = line.len() - rest.len();
        (length >= 3).then_some(Self { mark, length, rest })
    }

    /// Returns true if the line can open a code block. A language may follow the marks, but a further backtick makes it
    /// inline code.
    fn opens(&self) -> bool {
        self.mark == '~' || !self.rest.contains('`')
    }

    fn closes(&self, opened: &Self) -> bool {
        self.mark == opened.mark && self.length >= opened.length && self.rest.is_empty()
    }
}

/// Returns true if a text starts with an agent's id as a separate word: the third rule of the protocol.
pub(crate) fn begins_with(text: &str, agent: &str) -> bool {
    let begins = |agent: &str| begins_with_id(text, agent);
    begins(agent) || deprecated_id(agent).is_some_and(begins)
}

fn begins_with_id(text: &str, agent: &str) -> bool {
    let text = text.trim_start();
    let Some((start, rest)) = text.split_at_checked(agent.len()) else { return false };
    start.eq_ignore_ascii_case(agent) && is_id_end(rest)
}

/// Returns true if the id ends here: before `,`, `:`, `;`, `!`, `?`, a separator that is not ASCII, white space, or the
/// end.
///
/// A full stop or bracket ends the id only before white space or the end: in `claude.md`, `claude/src` and `claude's`
/// the word continues.
fn is_id_end(rest: &str) -> bool {
    let rest = rest.trim_start_matches(['.', ')']);
    rest.chars().next().is_none_or(|next| match next {
        ',' | ':' | ';' | '!' | '?' => true,
        next if next.is_ascii() => next.is_ascii_whitespace(),
        next => !is_part(next) && !continues_name(next),
    })
}

/// Returns true for a non-ASCII character that continues a word: apostrophe, hyphen, underscore or combining mark.
fn continues_name(c: char) -> bool {
    matches!(c, '\u{2018}' | '\u{2019}' | '\u{ff07}' | '\u{2010}' | '\u{2011}' | '\u{ff0d}' | '\u{ff3f}')
        || matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}')
        || matches!(c, '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}')
}

/// Returns the parts of a line outside inline code, which is enclosed in runs of equally many backticks. An unpaired
/// run opens nothing.
fn outside_code(line: &str) -> Vec<&str> {
    // The last run of each length is computed first, so that pairing needs no repeated search in long lines.
    let last: HashMap<usize, usize> = runs(line).map(|(start, length)| (length, start)).collect();
    let (mut parts, mut rest) = (Vec::new(), 0);
    let mut runs = runs(line);
    while let Some((start, length)) = runs.next() {
        parts.push(&line[rest..start]);
        rest = start + length;
        if last.get(&length).is_some_and(|last| *last > start)
            && let Some((end, _)) = runs.find(|(_, other)| *other == length)
        {
            rest = end + length;
        }
    }
    parts.push(&line[rest..]);
    parts
}

/// Returns the runs of backticks, each with start and length.
fn runs(line: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].find('`')?;
        at = start + line[start..].bytes().take_while(|byte| *byte == b'`').count();
        Some((start, at - start))
    })
}

fn has_mention(text: &str, agent: &str) -> bool {
    let (mut read, mut is_in_address) = (0, false);
    text.match_indices('@').any(|(at, _)| {
        let (before, since) = (&text[..at], &text[read..at]);
        read = at;
        // Text inside a URL, up to the next white space, is not a mention.
        is_in_address = match since.rfind(char::is_whitespace) {
            Some(space) => since[space..].contains("://"),
            None => is_in_address || since.contains("://"),
        };
        let begins_token =
            !is_in_address && before.chars().next_back().is_none_or(|last| !is_part(last) && last != '.');
        let after = &text[at + 1..];
        let is_name = after
            .split_at_checked(agent.len())
            .is_some_and(|(name, rest)| name.eq_ignore_ascii_case(agent) && ends_token(rest));
        begins_token && is_name
    })
}

fn ends_token(rest: &str) -> bool {
    rest.chars().next().is_none_or(|next| !is_part(next))
}

/// Returns true for a character that continues a name, and for an invisible one that could hide it.
fn is_part(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '_' | '-' | '@' | '+' | '%')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}')
}

#[cfg(test)]
#[path = "mention_tests.rs"]
mod tests;
