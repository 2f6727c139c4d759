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
    let mut fence = None;
    text.lines().any(|line| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(opened)) => {
                fence = Some(opened);
                false
            }
            (Some(opened), Some(closing)) if opened == closing => {
                fence = None;
                false
            }
            (Some(_), _) => false,
            (None, None) => {
                !start.starts_with('>') && outside_code(line).any(|part| has_mention(part, agent))
            }
        }
    })
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

/// The parts of a line that are not between backticks. One without a partner begins nothing.
fn outside_code(line: &str) -> impl Iterator<Item = &str> {
    let parts: Vec<&str> = line.split('`').collect();
    let closed = parts.len() % 2 == 1;
    let last = parts.len() - 1;
    parts
        .into_iter()
        .enumerate()
        .filter(move |(n, _)| n % 2 == 0 || (!closed && *n == last))
        .map(|(_, part)| part)
}

fn has_mention(text: &str, agent: &str) -> bool {
    text.match_indices('@').any(|(at, _)| {
        let begins_token =
            text[..at].chars().next_back().is_none_or(|before| !is_part(before) && before != '.');
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
