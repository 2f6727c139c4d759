//! Patterns of paths, and whether two of them can mean the same file.
//!
//! `*` and `?` stand for characters within a part of a path, `[a-z]` for one of some, `**` for any number of parts.
//! Upper and lower case are the same:
//! on some file systems they are one file.

use std::fmt;

/// A pattern of paths within a tree.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    parts: Vec<Part>,
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern '{}' {problem}", .text.escape_debug())]
pub struct PatternError {
    text: String,
    problem: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `**`
    AnyParts,
    Text(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    /// `?`
    Any,
    /// `*`
    Many,
    /// `[a-z]`, or with `!` all but these.
    Class {
        not: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Pattern {
    /// Most bytes of a pattern; the comparison of two takes the product of their lengths.
    pub const LONGEST: usize = 1024;

    /// Reads a pattern of paths, with `/` between their parts and neither `.` nor `..` among them.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let wrong = |problem| PatternError { text: text.chars().take(80).collect(), problem };
        if text.len() > Self::LONGEST {
            return Err(wrong("has more than 1024 bytes"));
        }
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return Err(wrong("has a backslash or control characters in it"));
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" => return Err(wrong("has an empty part")),
                "." | ".." => return Err(wrong("has '.' or '..' after its first wildcard")),
                "**" if parts.last() == Some(&Part::AnyParts) => {}
                "**" => parts.push(Part::AnyParts),
                _ => parts.push(Part::Text(tokens(part).ok_or_else(|| wrong("has a '[' without a ']'"))?)),
            }
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// A path, whatever characters are in it.
    pub fn path(path: &str) -> Self {
        let literal = |part: &str| Part::Text(part.to_lowercase().chars().map(Token::Char).collect());
        let parts = path.split('/').filter(|part| !part.is_empty()).map(literal).collect();
        Self { text: path.to_owned(), parts }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether some path is meant by both. It is the same from either side.
    pub fn overlaps(&self, other: &Self) -> bool {
        meet(&self.parts, &other.parts, &same_part)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a part of a path has wildcards in it.
pub fn has_wildcard(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

/// The tokens of one part; nothing where a class does not end.
fn tokens(part: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let lower = part.to_lowercase();
    let mut chars = lower.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' if tokens.last() == Some(&Token::Many) => continue,
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
    Some(tokens)
}

/// What stands for any number of others.
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

/// Whether two sequences can mean the same: `reach[j]` says whether what was seen of the first and the first `j` of the
/// second can.
fn meet<T: Wild>(one: &[T], other: &[T], same: &dyn Fn(&T, &T) -> bool) -> bool {
    let mut reach: Vec<bool> = Vec::with_capacity(other.len() + 1);
    reach.push(true);
    for item in other {
        reach.push(item.is_wild() && reach.last().is_some_and(|reached| *reached));
    }
    for item in one {
        let mut next = vec![item.is_wild() && reach[0]];
        for (at, opposite) in other.iter().enumerate() {
            let is_wild = item.is_wild() || opposite.is_wild();
            // What stands for any number stands for none, or for one more.
            let wild = is_wild && (reach[at] || reach[at + 1] || next[at]);
            next.push(wild || (reach[at] && !is_wild && same(item, opposite)));
        }
        reach = next;
    }
    reach[other.len()]
}

fn same_part(one: &Part, other: &Part) -> bool {
    match (one, other) {
        (Part::Text(one), Part::Text(other)) => meet(one, other, &same_token),
        _ => true,
    }
}

fn same_token(one: &Token, other: &Token) -> bool {
    match (one, other) {
        (Token::Char(one), Token::Char(other)) => one == other,
        (Token::Char(c), Token::Class { not, ranges }) | (Token::Class { not, ranges }, Token::Char(c)) => {
            *not != ranges.iter().any(|(first, last)| (first..=last).contains(&c))
        }
        (Token::Class { not: false, ranges: one }, Token::Class { not: false, ranges: other }) => {
            one.iter().any(|(a, b)| other.iter().any(|(c, d)| a <= d && c <= b))
        }
        // There is always some other character.
        _ => true,
    }
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
