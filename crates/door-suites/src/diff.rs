//! What changed between two texts, for a person to read.

use similar::{ChangeTag, TextDiff};

/// Most lines of a difference that are shown: a person reads a screen, not a book.
const MOST_LINES: usize = 60;

/// Longest line that is shown.
const LONGEST_LINE: usize = 400;

/// The lines that went and the lines that came, each with `-` or `+` before it, with one line around them.
/// What cannot be seen in them is shown escaped.
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

/// A line with everything in it made visible, cut after so many characters.
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
