//! Path patterns (globs), and a test whether two patterns can match the same file.
//!
//! `*` and `?` match characters within a path component, `[a-z]` matches one character of a class, and `**` matches any
//! number of components. Matching ignores case, because two spellings are the same file on some file systems.

use std::fmt;

/// A path pattern (glob) within a tree.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    parts: Vec<Part>,
}

/// Error of parsing a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern '{}' {reason}", .text.escape_debug())]
pub struct PatternError {
    text: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Any number of components: `**`.
    AnyParts,
    Text(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    /// Any single character: `?`.
    Any,
    /// Any number of characters: `*`.
    Many,
    /// Character class: `[a-z]`. With `!` or `^` first, it matches every character that is not listed.
    Class {
        not: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Pattern {
    /// Maximum length of a pattern in bytes.
    ///
    /// Comparing two patterns takes time proportional to the product of their lengths.
    pub const LONGEST: usize = 1024;

    /// Parses a pattern whose components are separated by `/`. The components `.` and `..` are rejected.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let wrong = |reason| PatternError { text: text.chars().take(80).collect(), reason };
        if text.len() > Self::LONGEST {
            return Err(wrong("has more than 1024 bytes"));
        }
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return Err(wrong("has a backslash or control characters"));
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" => return Err(wrong("has an empty part")),
                "." | ".." => return Err(wrong("has '.' or '..' after its first wildcard")),
                "**" if parts.last() == Some(&Part::AnyParts) => {}
                "**" => parts.push(Part::AnyParts),
                _ => parts.push(Part::Text(tokenize(part).ok_or_else(|| wrong("has a '[' without a ']'"))?)),
            }
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Returns a pattern that matches one path literally.
    pub fn path(path: &str) -> Self {
        let literal = |part: &str| Part::Text(part.to_lowercase().chars().map(Token::Char).collect());
        let parts = path.split('/').filter(|part| !part.is_empty()).map(literal).collect();
        Self { text: path.to_owned(), parts }
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if some path matches both patterns. The relation is symmetric.
    pub fn overlaps(&self, other: &Self) -> bool {
        overlap(&self.parts, &other.parts, &parts_overlap)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns true if a path component contains wildcards.
pub fn has_wildcard(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

/// Tokenizes one component. Returns `None` if a class is not closed.
fn tokenize(part: &str) -> Option<Vec<Token>> {
    let mut tokenize = Vec::new();
    let lower = part.to_lowercase();
    let mut chars = lower.chars().peekable();
    while let Some(c) = chars.next() {
        tokenize.push(match c {
            '*' if tokenize.last() == Some(&Token::Many) => continue,
            '*' => Token::Many,
            '?' => Token::Any,
            '[' => {
                let not = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
                let mut ranges = Vec::new();
                loop {
                    let first = chars.next()?;
                    if first == ']' && !ranges.is_empty() {
                        break;
                    }
                    let mut last = first;
                    let mut ahead = chars.clone();
                    if ahead.next() == Some('-')
                        && let Some(end) = ahead.next().filter(|end| *end != ']')
                    {
                        (last, chars) = (end, ahead);
                    }
                    ranges.push((first, last));
                }
                Token::Class { not, ranges }
            }
            other => Token::Char(other),
        });
    }
    Some(tokenize)
}

/// Item of a pattern; a wildcard item matches any number of other items.
trait Wild {
    fn is_wild(&self) -> bool;
}

impl Wild for Part {
    fn is_wild(&self) -> bool {
        matches!(self, Self::AnyParts)
    }
}

impl Wild for Token {
    fn is_wild(&self) -> bool {
        matches!(self, Self::Many)
    }
}

/// Returns true if two sequences of items can match the same text.
///
/// The algorithm is dynamic programming: `reach[j]` is true if the items of `one` that are already processed and the
/// first `j` items of `other` can match the same text.
fn overlap<T: Wild>(one: &[T], other: &[T], same: &dyn Fn(&T, &T) -> bool) -> bool {
    let mut reach: Vec<bool> = Vec::with_capacity(other.len() + 1);
    reach.push(true);
    for item in other {
        reach.push(item.is_wild() && reach.last().is_some_and(|reached| *reached));
    }
    for item in one {
        let mut next = vec![item.is_wild() && reach[0]];
        for (at, opposite) in other.iter().enumerate() {
            let is_wild = item.is_wild() || opposite.is_wild();
            // A wildcard matches nothing, or one item more than before.
            let wild = is_wild && (reach[at] || reach[at + 1] || next[at]);
            next.push(wild || (reach[at] && !is_wild && same(item, opposite)));
        }
        reach = next;
    }
    reach[other.len()]
}

fn parts_overlap(one: &Part, other: &Part) -> bool {
    match (one, other) {
        (Part::Text(one), Part::Text(other)) => overlap(one, other, &tokens_overlap),
        _ => true,
    }
}

fn tokens_overlap(one: &Token, other: &Token) -> bool {
    match (one, other) {
        (Token::Char(one), Token::Char(other)) => one == other,
        (Token::Char(c), Token::Class { not, ranges }) | (Token::Class { not, ranges }, Token::Char(c)) => {
            *not != ranges.iter().any(|(first, last)| (first..=last).contains(&c))
        }
        (Token::Class { not: false, ranges: one }, Token::Class { not: false, ranges: other }) => {
            one.iter().any(|(a, b)| other.iter().any(|(c, d)| a <= d && c <= b))
        }
        // For `?` and negated classes, the function assumes that a common character exists.
        _ => true,
    }
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
