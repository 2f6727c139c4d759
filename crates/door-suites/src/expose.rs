//! Which tools of a child are offered at all.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use switchboard_core::{is_hidden, sanitize_description};

/// The longest name of a tool that is looked at. Hosts take 64 characters; children have been seen with more.
const MAX_NAME: usize = 256;

/// The owner's choice of tools: exact names and globs. What is denied stays denied, whatever is allowed.
///
/// Names are compared byte by byte after surrounding white space is gone. A name that differs in case, or that
/// only looks the same, is another name, so that no spelling gets past a rule; but what is denied is denied in
/// whatever case, so that no child gets past it by a new spelling either.
#[derive(Debug, Clone)]
pub(crate) struct Exposed {
    allow: Option<GlobSet>,
    deny: GlobSet,
}

impl Exposed {
    /// The rule, and the patterns that are none. A broken `allow` pattern allows nothing; a broken `deny`
    /// pattern still denies the tool that has exactly this name.
    pub(crate) fn new(allow: Option<&[String]>, deny: &[String]) -> (Self, Vec<String>) {
        let mut broken = Vec::new();
        let allow = allow.map(|allow| set(allow, false, &mut broken));
        let deny = set(deny, true, &mut broken);
        (Self { allow, deny }, broken)
    }

    /// Whether a tool is offered.
    pub(crate) fn offers(&self, tool: &str) -> bool {
        is_name(tool)
            && !self.deny.is_match(tool)
            && self.allow.as_ref().is_none_or(|allow| allow.is_match(tool))
    }
}

/// Whether every tool that a pattern allows is allowed by one of `patterns` as well.
///
/// Of two patterns that is known only where they are the same text.
pub fn is_covered_by(pattern: &str, patterns: &[String]) -> bool {
    let pattern = pattern.trim();
    let is_name = !pattern.contains(['*', '?', '[', ']', '{', '}', '\\', '!']);
    patterns.iter().any(|known| known.trim() == pattern)
        || (is_name && set(patterns, false, &mut Vec::new()).is_match(pattern))
}

/// Whether a text can be the name of a tool: no control or invisible characters, no markup that poses as an
/// instruction, no spaces around it, no path that goes upward.
pub(crate) fn is_name(tool: &str) -> bool {
    let is_odd = |c: char| c.is_control() || is_hidden(c);
    !tool.is_empty()
        && tool.len() <= MAX_NAME
        && tool.trim() == tool
        && !tool.contains(is_odd)
        && sanitize_description(tool).flags.is_empty()
        && !tool.split('/').any(|part| part == ".." || part == ".")
}

fn set(patterns: &[String], in_any_case: bool, broken: &mut Vec<String>) -> GlobSet {
    if patterns.is_empty() {
        return GlobSet::empty();
    }
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.trim();
        // `*` goes over `/`, which is a letter like any other in the name of a tool.
        let build = |pattern: &str| {
            GlobBuilder::new(pattern).literal_separator(false).case_insensitive(in_any_case).build()
        };
        let glob = build(pattern).or_else(|_| {
            broken.push(pattern.to_owned());
            build(&globset::escape(pattern))
        });
        if let Ok(glob) = glob {
            builder.add(glob);
        }
    }
    builder.build().unwrap_or_else(|_| GlobSet::empty())
}

#[cfg(test)]
#[path = "expose_tests.rs"]
mod tests;
