//! What is for an agent ("Detection Logic"), with exact tokens.

use crate::names::deprecated_id;

/// Whether a text mentions an agent as `@agent`, in any letter case, as names of agents are compared.
///
/// Only the whole id counts: `@qc-1` is not `@qc-10`. What stands in code or in quoted lines was said by
/// somebody else or to nobody, and an address of e-mail mentions nobody. An agent goes by its deprecated id as well.
pub fn is_mentioned(text: &str, agent: &str) -> bool {
    mentions(text, agent) || deprecated_id(agent).is_some_and(|old| mentions(text, old))
}

fn mentions(text: &str, agent: &str) -> bool {
    let mut fence: Option<Fence<'_>> = None;
    text.lines().any(|line| {
        let here = Fence::at(line.trim());
        match (&fence, here) {
            (Some(opened), here) => {
                if here.is_some_and(|here| here.closes(opened)) {
                    fence = None;
                }
                false
            }
            (None, Some(here)) if here.opens() => {
                fence = Some(here);
                false
            }
            (None, _) => {
                !line.trim_start().starts_with('>')
                    && outside_code(line).iter().any(|part| has_mention(part, agent))
            }
        }
    })
}

/// A line that may begin or end a block of code: three or more of one mark, and what follows them.
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

    /// Behind the marks may stand a language. With a further mark it is code within a line.
    fn opens(&self) -> bool {
        self.mark == '~' || !self.rest.contains('`')
    }

    fn closes(&self, opened: &Self) -> bool {
        self.mark == opened.mark && self.length >= opened.length && self.rest.is_empty()
    }
}

/// Whether a text begins with an agent's id, as a word of its own: the protocol's third rule.
pub(crate) fn begins_with(text: &str, agent: &str) -> bool {
    let begins = |agent: &str| begins_with_id(text, agent);
    begins(agent) || deprecated_id(agent).is_some_and(begins)
}

fn begins_with_id(text: &str, agent: &str) -> bool {
    let text = text.trim_start();
    let Some((start, rest)) = text.split_at_checked(agent.len()) else { return false };
    start.eq_ignore_ascii_case(agent) && ends_token(rest)
}

/// The parts of a line that are not between backticks: one or more, and as many again. Those without a partner begin nothing.
fn outside_code(line: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), line);
    while let Some(start) = rest.find('`') {
        let (before, marks) = rest.split_at(start);
        let behind = marks.trim_start_matches('`');
        parts.push(before);
        rest = after_code(behind, marks.len() - behind.len()).unwrap_or(behind);
    }
    parts.push(rest);
    parts
}

/// What comes after the next run of so many backticks; nothing where there is none.
fn after_code(mut text: &str, length: usize) -> Option<&str> {
    loop {
        let marks = &text[text.find('`')?..];
        text = marks.trim_start_matches('`');
        if marks.len() - text.len() == length {
            return Some(text);
        }
    }
}

fn has_mention(text: &str, agent: &str) -> bool {
    text.match_indices('@').any(|(at, _)| {
        let before = &text[..at];
        // What stands in the address of a page is part of that.
        let is_in_address =
            before.rsplit(char::is_whitespace).next().is_some_and(|word| word.contains("://"));
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

/// Whether a character goes on with a name, or hides that it does.
fn is_part(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '_' | '-' | '@' | '+' | '%')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}')
}

#[cfg(test)]
#[path = "mention_tests.rs"]
mod tests;
