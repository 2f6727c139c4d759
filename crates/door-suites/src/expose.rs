//! Filter that decides which tools of a child are offered.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use switchboard_core::{is_hidden, sanitize_description};

/// Maximum length of an accepted tool name. Hosts accept 64 characters, but some children use longer names.
const MAX_NAME: usize = 256;

/// Tool filter of the owner: exact names and globs. `deny` always overrides `allow`.
///
/// Patterns are trimmed. `allow` compares byte by byte, so a name with different case or look-alike characters is a
/// different name and bypasses no rule. `deny` ignores case, so that a child cannot bypass it with another spelling.
#[derive(Debug, Clone)]
pub(crate) struct ToolFilter {
    allow: Option<GlobSet>,
    deny: GlobSet,
}

impl ToolFilter {
    /// Builds a filter, and returns it with the invalid patterns.
    ///
    /// An invalid `allow` pattern matches only its literal text. An invalid `deny` pattern still denies the tool with
    /// exactly that name.
    pub(crate) fn new(allow: Option<&[String]>, deny: &[String]) -> (Self, Vec<String>) {
        let mut broken = Vec::new();
        let allow = allow.map(|allow| build_globs(allow, false, &mut broken));
        let deny = build_globs(deny, true, &mut broken);
        (Self { allow, deny }, broken)
    }

    /// Returns true if the filter offers the tool.
    pub(crate) fn offers(&self, tool: &str) -> bool {
        is_valid_tool_name(tool)
            && !self.deny.is_match(tool)
            && self.allow.as_ref().is_none_or(|allow| allow.is_match(tool))
    }
}

/// Returns true if `patterns` allow every tool that `pattern` allows.
///
/// A glob is considered covered only if the same text is among `patterns`.
pub fn is_covered_by(pattern: &str, patterns: &[String]) -> bool {
    let pattern = pattern.trim();
    let is_valid_tool_name = !pattern.contains(['*', '?', '[', ']', '{', '}', '\\', '!']);
    patterns.iter().any(|known| known.trim() == pattern)
        || (is_valid_tool_name && build_globs(patterns, false, &mut Vec::new()).is_match(pattern))
}

/// Returns true if the text is a valid tool name.
///
/// A valid name has no control or invisible characters, no markup that imitates instructions, no surrounding spaces and
/// no `..` path components.
pub(crate) fn is_valid_tool_name(tool: &str) -> bool {
    let is_odd = |c: char| c.is_control() || is_hidden(c);
    !tool.is_empty()
        && tool.len() <= MAX_NAME
        && tool.trim() == tool
        && !tool.contains(is_odd)
        && sanitize_description(tool).flags.is_empty()
        && !tool.split('/').any(|part| part == ".." || part == ".")
}

fn build_globs(patterns: &[String], in_any_case: bool, broken: &mut Vec<String>) -> GlobSet {
    if patterns.is_empty() {
        return GlobSet::empty();
    }
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.trim();
        // `*` also matches `/`, because `/` has no special meaning in tool names.
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
