//! Line diff of two texts, shown to people.

use similar::{ChangeTag, TextDiff};

/// Maximum number of lines shown of a diff: one screen.
const MOST_LINES: usize = 60;

/// Maximum length of a shown line, in characters, so that one line cannot fill the screen.
const LONGEST_LINE: usize = 400;

/// Renders a unified diff with one line of context. Invisible characters are escaped.
///
/// Removed lines have the prefix `-`, added lines the prefix `+`.
pub(crate) fn line_diff(before: &str, after: &str) -> String {
    let diff = TextDiff::configure().timeout(std::time::Duration::from_millis(200)).diff_lines(before, after);
    let mut lines = Vec::new();
    for group in diff.grouped_ops(1) {
        for op in group {
            for change in diff.iter_changes(&op) {
                let sign = match change.tag() {
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                    ChangeTag::Equal => ' ',
                };
                lines.push(format!(
                    "{sign} {}",
                    escape_invisible(change.value().trim_end_matches('\n'), LONGEST_LINE)
                ));
            }
        }
    }
    let left = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if left > 0 {
        lines.push(format!("  … and {left} more lines"));
    }
    lines.join("\n")
}

/// Escapes the control and invisible characters of a line, and truncates the line.
pub(crate) fn escape_invisible(line: &str, longest: usize) -> String {
    let mut out = String::with_capacity(line.len());
    for (at, c) in line.chars().enumerate() {
        if at == longest {
            out.push('…');
            break;
        }
        if c != '\t' && (c.is_control() || switchboard_core::is_hidden(c)) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}
