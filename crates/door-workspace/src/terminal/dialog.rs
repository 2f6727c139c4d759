//! Detects dialogs, menus and questions on a screen. Pure.
//!
//! Typed text must not answer any of them.

use super::screen::Screen;

/// Markers of the selected line of a menu.
const SELECTORS: [char; 14] = ['❯', '›', '>', '●', '◉', '▶', '▸', '►', '→', '*', '➤', '•', '☞', '»'];

/// Key hints that identify a dialog, in lower case.
const HINTS: [&str; 17] = [
    "esc to cancel",
    "esc to go back",
    "esc to close",
    "enter to confirm",
    "enter confirm",
    "enter to select",
    "enter to submit",
    "enter to continue",
    "enter to accept",
    "enter to approve",
    "enter to proceed",
    "return to confirm",
    "return to select",
    "to navigate",
    "↑/↓ select",
    "↑↓ select",
    "press any key",
];

/// Phrases that identify a question which waits for one key or one word, in lower case.
const QUESTIONS: [&str; 17] = [
    "(y/n",
    "[y/n",
    "y/n)",
    "y/n]",
    "(yes/no",
    "[yes/no",
    "yes/no]",
    "do you want",
    "would you like",
    "are you sure",
    "do you trust",
    "allow?",
    "proceed?",
    "press enter",
    "press return",
    "passphrase",
    "password",
];

/// Phrases shown next to an input field while the program is working.
const BUSY: [&str; 6] = [
    "esc to interrupt",
    "(esc to cancel",
    "ctrl+c to interrupt",
    "ctrl-c to interrupt",
    "esc interrupt",
    "◎ working",
];

/// Returns true if the screen shows a menu: numbered choices of which one is selected.
///
/// A menu has a numbered line with a selector in front, and the next or previous number nearby.
pub(crate) fn has_menu(screen: &Screen) -> bool {
    let choices: Vec<Choice> =
        (0..screen.rows.len()).filter_map(|row| Choice::read(row, &screen.row(row))).collect();
    choices.iter().filter(|choice| choice.is_selected).any(|selected| {
        choices.iter().any(|other| {
            other.row.abs_diff(selected.row) <= MAX_CHOICE_GAP && other.number.abs_diff(selected.number) == 1
        })
    })
}

/// Maximum number of rows between two choices: some choices have a description below them.
const MAX_CHOICE_GAP: usize = 4;

struct Choice {
    row: usize,
    number: u32,
    is_selected: bool,
}

impl Choice {
    /// Parses a numbered choice: `❯ 1. Yes`, `│ ● 2) No │`, `[3] Maybe`.
    fn read(row: usize, text: &str) -> Option<Self> {
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || is_border(c));
        let rest = text.trim_start_matches(|c: char| SELECTORS.contains(&c) || c.is_whitespace());
        let is_selected = rest.len() < text.len();
        let rest = rest.strip_prefix(['[', '(']).unwrap_or(rest);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, label) = rest.split_at(digits);
        let label = label.strip_prefix(['.', ')', ']', ':'])?;
        let is_label = label.starts_with(char::is_whitespace) && !label.trim().is_empty();
        let number = number.parse().ok().filter(|_| is_label && digits <= 2)?;
        Some(Self { row, number, is_selected })
    }
}

/// Returns true if one of the rows contains the key hints of a dialog.
pub(crate) fn has_hints(screen: &Screen, rows: impl IntoIterator<Item = usize>) -> bool {
    has_any(screen, rows, &HINTS)
}

/// Returns true if one of the rows contains a question.
pub(crate) fn has_question(screen: &Screen, rows: impl IntoIterator<Item = usize>) -> bool {
    let rows: Vec<usize> = rows.into_iter().collect();
    let asks = |row: &usize| screen.row(*row).trim_end_matches([' ', ':']).ends_with('?');
    rows.iter().any(asks) || has_any(screen, rows.iter().copied(), &QUESTIONS)
}

/// Returns true if one of the rows shows that the program is busy.
pub(crate) fn is_busy(screen: &Screen, rows: impl IntoIterator<Item = usize>) -> bool {
    has_any(screen, rows, &BUSY)
}

fn has_any(screen: &Screen, rows: impl IntoIterator<Item = usize>, words: &[&str]) -> bool {
    rows.into_iter().any(|row| {
        let text = screen.row(row).to_lowercase();
        words.iter().any(|word| text.contains(word))
    })
}

/// Returns true for the vertical lines of boxes.
pub(crate) fn is_border(c: char) -> bool {
    matches!(c, '│' | '┃' | '║' | '▌' | '▐' | '▎' | '|' | '╎' | '┆')
}

/// Returns true for a row that is one horizontal line.
///
/// Such a line is, for example, the edge of a box.
pub(crate) fn is_rule(text: &str) -> bool {
    let text = text.trim();
    let is_line = |c: char| matches!(c, '\u{2500}'..='\u{257f}' | '▀' | '▄' | '▁' | '▔' | '_' | '-' | '=');
    // A title or a hint may be part of the line.
    let lines = text.chars().filter(|c| is_line(*c)).count();
    lines >= 8 && lines * 2 > text.chars().count() && text.starts_with(is_line)
}
