//! Detects dialogs, menus and questions on a screen, which no typed text may answer. Pure.

use super::screen::Screen;

/// Markers of the selected line of a menu.
const SELECTORS: [char; 14] = ['❯', '›', '>', '●', '◉', '▶', '▸', '►', '→', '*', '➤', '•', '☞', '»'];

/// Key hints of a dialog, in lower case.
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

/// Phrases of a question that waits for one key or one word, in lower case.
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

/// Phrases next to an input field while the program works.
const BUSY: [&str; 6] = [
    "esc to interrupt",
    "(esc to cancel",
    "ctrl+c to interrupt",
    "ctrl-c to interrupt",
    "esc interrupt",
    "◎ working",
];

/// True if the screen shows numbered choices of which one is selected.
///
/// That is a numbered line with a selector in front, and its successor or predecessor nearby.
pub(crate) fn has_menu(screen: &Screen) -> bool {
    let choices: Vec<Choice> =
        (0..screen.rows.len()).filter_map(|row| Choice::read(row, &screen.row(row))).collect();
    choices.iter().filter(|choice| choice.is_selected).any(|selected| {
        choices.iter().any(|other| {
            other.row.abs_diff(selected.row) <= MAX_CHOICE_GAP && other.number.abs_diff(selected.number) == 1
        })
    })
}

/// Most rows between two choices: some have a description below them.
const MAX_CHOICE_GAP: usize = 4;

struct Choice {
    row: usize,
    number: u32,
    is_selected: bool,
}

impl Choice {
    /// Parses `❯ 1. Yes`, `│ ● 2) No │`, `[3] Maybe`.
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

/// True if one of the rows has the key hints of a dialog.
pub(crate) fn has_hints(screen: &Screen, rows: impl IntoIterator<Item = usize>) -> bool {
    has_any(screen, rows, &HINTS)
}

/// True if one of the rows has a question.
pub(crate) fn has_question(screen: &Screen, rows: impl IntoIterator<Item = usize>) -> bool {
    let rows: Vec<usize> = rows.into_iter().collect();
    let asks = |row: &usize| screen.row(*row).trim_end_matches([' ', ':']).ends_with('?');
    rows.iter().any(asks) || has_any(screen, rows.iter().copied(), &QUESTIONS)
}

/// True if one of the rows shows that the program is busy.
pub(crate) fn is_busy(screen: &Screen, rows: impl IntoIterator<Item = usize>) -> bool {
    has_any(screen, rows, &BUSY)
}

fn has_any(screen: &Screen, rows: impl IntoIterator<Item = usize>, words: &[&str]) -> bool {
    rows.into_iter().any(|row| {
        let text = screen.row(row).to_lowercase();
        words.iter().any(|word| text.contains(word))
    })
}

/// True for vertical lines of boxes.
pub(crate) fn is_border(c: char) -> bool {
    matches!(c, '│' | '┃' | '║' | '▌' | '▐' | '▎' | '|' | '╎' | '┆')
}

/// True for a row that is one horizontal line, from one end of a box to the other.
pub(crate) fn is_rule(text: &str) -> bool {
    let text = text.trim();
    let is_line = |c: char| matches!(c, '\u{2500}'..='\u{257f}' | '▀' | '▄' | '▁' | '▔' | '_' | '-' | '=');
    // The line may contain a title or a hint.
    let lines = text.chars().filter(|c| is_line(*c)).count();
    lines >= 8 && lines * 2 > text.chars().count() && text.starts_with(is_line)
}
