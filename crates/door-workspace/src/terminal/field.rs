//! Finds the input field of a program on its screen. Pure.
//!
//! Every known client leaves the cursor in its input field, right after the prompt, and moves it elsewhere while a
//! dialog is open. So an empty field is recognized by a cursor right after a prompt, with nothing else in the line and
//! no question around it.

use super::dialog::{has_hints, has_menu, has_question, is_border, is_busy, is_rule};
use super::screen::{InputMode, Screen};

/// Reason why no text is typed at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Obstacle {
    /// The program accepts neither pastes nor lines.
    #[error("the program does not take input now")]
    NotReady,
    /// The screen shows a dialog, a menu, or a prompt for one key.
    #[error("the program shows a question")]
    Question,
    /// The program is busy.
    ///
    /// It would only queue the text, and may show a question at any moment.
    #[error("the program is busy")]
    Busy,
    /// The field contains text that the person typed, or the cursor is elsewhere.
    #[error("the program shows no empty input field")]
    Occupied,
    /// The person is using the keyboard, or the screen is changing.
    #[error("the terminal is in use")]
    InUse,
    /// The pasted text did not appear as typed and was removed.
    #[error("the text did not appear in the input field as it was typed, and was removed")]
    NotEchoed,
    /// The pasted text did not appear as typed and could not be removed.
    #[error("the text did not appear in the input field as it was typed")]
    NotRemoved,
    /// Enter was pressed, but the text is still in the field.
    #[error("Enter was pressed, but the text stayed in the input field: it may not have been sent")]
    NotSent,
}

/// An empty input field on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Text of the cursor's row up to the cursor: borders and the prompt.
    prompt: String,
    /// True if the field has a frame, as in agents' command lines.
    is_framed: bool,
}

/// Content of an input field after a paste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Echo {
    /// The field contains exactly the text, or the client's placeholder for it.
    Exact,
    /// The field is empty.
    Empty,
    /// The field contains other text.
    Other(String),
    /// The field is not visible, for example because a dialog covers it.
    Hidden,
}

/// Prompt characters of agents' command lines, whose input field has a frame.
const MARKERS: [char; 4] = ['❯', '›', '>', '*'];

/// Last characters of a shell prompt.
const SHELL_ENDS: [char; 3] = ['$', '#', '%'];

/// Last characters of other prompts. Programs also print these characters before questions.
const OTHER_ENDS: [char; 14] = ['>', '❯', '›', '»', 'λ', '✗', '➜', '▶', '⟩', '→', '\u{e0b0}', '❭', '⟫', '⇒'];

/// Words in the continuation prompts of zsh.
const ZSH_CONTINUES: [&str; 26] = [
    "for",
    "while",
    "until",
    "if",
    "then",
    "else",
    "elif",
    "case",
    "select",
    "repeat",
    "foreach",
    "quote",
    "dquote",
    "bquote",
    "cmdsubst",
    "cmdor",
    "cmdand",
    "pipe",
    "errpipe",
    "function",
    "braceparam",
    "mathsubst",
    "heredoc",
    "cursh",
    "subsh",
    "array",
];

/// Placeholders of empty fields that some themes do not draw in grey.
const PLACEHOLDERS: [&str; 4] = ["Type your message", "Ask anything", "Ask Codex", "Try \""];

/// Number of rows above a framed field that may show the program's state.
///
/// Examples are a status line, a spinner and a tip.
const NEARBY_ROWS: usize = 6;

/// Number of non-empty rows above a plain prompt that may contain its question.
const QUESTION_ROWS: usize = 4;

/// Gap in columns between the cursor and a prompt at the right edge.
///
/// Text after a larger gap counts as such a prompt, and not as content of the field.
const RIGHT_PROMPT_GAP: usize = 4;

/// Minimum length in characters of a text's end that identifies the text.
///
/// This applies once the start of the text has scrolled away.
const IDENTIFYING_LENGTH: usize = 200;

impl Field {
    /// Finds the empty input field of a screen, or returns the reason why there is none.
    pub(crate) fn find(screen: &Screen) -> Result<Self, Obstacle> {
        if screen.mode == InputMode::Keys {
            return Err(Obstacle::NotReady);
        }
        if has_menu(screen) {
            return Err(Obstacle::Question);
        }
        let (row, _) = screen.cursor;
        let before = screen.before_cursor();
        let below = row + 1..screen.rows.len();
        if has_hints(screen, below.clone()) {
            return Err(Obstacle::Question);
        }
        let nearby = row.saturating_sub(NEARBY_ROWS)..screen.rows.len();
        let is_framed = is_framed(screen, &before);
        let field = Self { prompt: before.clone(), is_framed };
        if is_framed {
            if !has_only_ghost(screen) {
                return Err(Obstacle::Occupied);
            }
            return if is_busy(screen, nearby) { Err(Obstacle::Busy) } else { Ok(field) };
        }
        let above = (0..row).rev().filter(|row| !screen.row(*row).is_empty()).take(QUESTION_ROWS);
        let around: Vec<usize> = above.chain([row]).collect();
        let end = before.trim_end().chars().next_back();
        let is_shell = end.is_some_and(|end| SHELL_ENDS.contains(&end));
        if !is_shell && (has_question(screen, around.clone()) || has_hints(screen, around)) {
            return Err(Obstacle::Question);
        }
        let is_immediate = match end {
            None => screen.mode == InputMode::Lines,
            Some(end) => {
                let has_space = before.ends_with(char::is_whitespace) || is_shell;
                has_space
                    && (is_shell || OTHER_ENDS.contains(&end))
                    && !is_continuation(screen, before.trim())
            }
        };
        let is_last = below.clone().all(|row| screen.row(row).is_empty());
        if is_immediate && is_last && has_nothing_after(screen) { Ok(field) } else { Err(Obstacle::Occupied) }
    }

    /// Returns true if the field has a frame.
    pub(crate) fn is_framed(&self) -> bool {
        self.is_framed
    }

    /// Returns true if the field still holds text.
    ///
    /// The cursor's row must be the row of the field and have text before the cursor, or a part of `text` after it.
    /// Gemini redraws its field while it starts: the text stays, and the cursor moves in front of the text.
    pub(crate) fn holds_text(&self, screen: &Screen, text: &str) -> bool {
        let prompt = self.prompt.trim_end();
        let before = screen.before_cursor();
        let Some(entered) = before.strip_prefix(prompt).filter(|_| !prompt.is_empty()) else { return false };
        let after: String = screen.after_cursor().iter().map(|cell| cell.text.as_str()).collect();
        let after = strip_blanks(after.trim_matches(is_edge));
        let is_ours =
            || !after.is_empty() && strip_blanks(text).contains(&after) && !has_nothing_after(screen);
        screen.mode == InputMode::Paste && (!entered.trim().is_empty() || is_ours())
    }

    /// Compares the field's content with a text that was pasted into it.
    ///
    /// Gemini draws a tab as four columns but counts it as one, so the cursor is not at the end of a text with tabs.
    /// For such a text, the whole row is compared.
    pub(crate) fn echo(&self, screen: &Screen, text: &str) -> Echo {
        let shown = self.compare(screen, text, CursorRow::ToCursor);
        let is_whole = || self.compare(screen, text, CursorRow::Whole) == Echo::Exact;
        if shown != Echo::Exact && text.contains('\t') && is_whole() { Echo::Exact } else { shown }
    }

    fn compare(&self, screen: &Screen, text: &str, extent: CursorRow) -> Echo {
        if has_menu(screen) || has_hints(screen, screen.cursor.0 + 1..screen.rows.len()) {
            return Echo::Hidden;
        }
        if extent == CursorRow::ToCursor && !has_nothing_after(screen) {
            return Echo::Hidden;
        }
        let wanted = strip_blanks(text);
        let mut first = None;
        let mut tail = String::new();
        for row in (0..=screen.cursor.0).rev() {
            let line = line(screen, row, extent);
            if is_rule(&line) && !wanted.contains(&strip_blanks(&line)) {
                return self.classify(first, &tail, text, screen.cursor.0 - row);
            }
            let prompt = self.prompt.trim_end();
            if let Some(begin) = line.strip_prefix(prompt) {
                let found = strip_blanks(begin) + &tail;
                if found == wanted {
                    return Echo::Exact;
                }
                first.get_or_insert(found);
                if self.has_marker() && !wanted.contains(&strip_blanks(&line)) {
                    break;
                }
            }
            tail = strip_blanks(line.trim_matches(is_edge)) + &tail;
        }
        self.classify(first, &tail, text, screen.cursor.0 + 1)
    }

    /// Returns true if the prompt marks the first line.
    ///
    /// This is the case if the prompt is more than the border of a box, which all lines have.
    fn has_marker(&self) -> bool {
        self.prompt.chars().any(|c| !c.is_whitespace() && !is_border(c))
    }

    /// Classifies the content of a field that differs from the text.
    fn classify(&self, first: Option<String>, tail: &str, text: &str, rows: usize) -> Echo {
        // If the first line has scrolled away, compare only the end of the text.
        let has_scrolled = first.is_none() || !self.has_marker();
        if has_scrolled
            && rows >= 3
            && tail.chars().count() >= IDENTIFYING_LENGTH
            && strip_blanks(text).ends_with(tail)
        {
            return Echo::Exact;
        }
        match first {
            Some(found) if found.is_empty() => Echo::Empty,
            Some(found) if is_collapsed(&found, text) => Echo::Exact,
            Some(found) => Echo::Other(found),
            None => Echo::Hidden,
        }
    }
}

/// The part of the cursor's row that belongs to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CursorRow {
    ToCursor,
    Whole,
}

/// Returns a row of the field without the right edge of its box.
fn line(screen: &Screen, row: usize, extent: CursorRow) -> String {
    if row != screen.cursor.0 {
        return screen.row(row);
    }
    let before = screen.before_cursor();
    let whole = screen.row(row);
    let text = whole.trim_end_matches(is_edge);
    if extent == CursorRow::ToCursor || text.len() < before.len() { before } else { text.to_owned() }
}

/// Returns true for characters between a text and the right edge of its box.
///
/// `|` is not among them, because it may belong to the text.
fn is_edge(c: char) -> bool {
    c.is_whitespace() || (is_border(c) && c != '|')
}

/// Returns true if the field has a frame, as in agents' command lines.
///
/// The prompt must be the only text between the lines of the frame.
fn is_framed(screen: &Screen, before: &str) -> bool {
    let (row, _) = screen.cursor;
    let above = row.checked_sub(1).map(|row| screen.row(row)).unwrap_or_default();
    let below = screen.row(row + 1);
    let prompt = before.trim();
    let mut signs = prompt.chars().filter(|c| !is_border(*c) && !c.is_whitespace());
    let Some(sign) = signs.next() else {
        // opencode draws only a bar at the left, over three rows.
        let has_bar = |text: &str| text.trim_start().starts_with('┃');
        return prompt == "┃" && has_bar(&above) && has_bar(&below);
    };
    if signs.next().is_some() || !MARKERS.contains(&sign) || !before.ends_with(char::is_whitespace) {
        return false;
    }
    let is_last = row + 1 >= screen.rows.len();
    if is_rule(&above) && (is_rule(&below) || is_last) {
        return true;
    }
    // Gemini without true colour draws three filled rows instead of a frame.
    let mut band = row.saturating_sub(1)..=row + 1;
    if above.is_empty() && below.is_empty() && row > 0 && band.all(|row| screen.is_filled(row)) {
        return true;
    }
    // Codex draws no lines; it leaves a blank row above and below the field and shows a status line below.
    let has_status = (row + 2..=row + 3).any(|row| !screen.row(row).is_empty());
    sign == '›' && above.is_empty() && below.is_empty() && has_status
}

/// Returns true if the rest of the cursor's row is blank or ghost text.
///
/// Ghost text is a placeholder or a suggestion.
fn has_only_ghost(screen: &Screen) -> bool {
    let after = screen.after_cursor();
    let is_edge = |text: &str| text.chars().all(|c| c.is_whitespace() || is_border(c));
    let is_placeholder = || {
        let text: String = after.iter().map(|cell| cell.text.as_str()).collect();
        PLACEHOLDERS.iter().any(|known| text.trim_start().starts_with(known))
    };
    // A block cursor has its own colour, so a blank cell counts as blank whatever its colour.
    after.iter().all(|cell| is_edge(&cell.text) || cell.is_faint) || is_placeholder()
}

/// Returns true if nothing follows the cursor, except a prompt at the right edge.
fn has_nothing_after(screen: &Screen) -> bool {
    let after = screen.after_cursor();
    let gap = after.iter().take_while(|cell| cell.is_blank()).count();
    gap == after.len() || gap > RIGHT_PROMPT_GAP || has_only_ghost(screen)
}

/// Returns true for a continuation prompt: `>` below an unfinished command, or a zsh continuation prompt.
fn is_continuation(screen: &Screen, prompt: &str) -> bool {
    let Some(words) = prompt.strip_suffix('>') else { return false };
    if !words.is_empty() {
        return words.split_whitespace().all(|word| ZSH_CONTINUES.contains(&word));
    }
    let above = (0..screen.cursor.0).rev().map(|row| screen.row(row));
    let mut commands = above.skip_while(|row| row.starts_with('>'));
    let is_command = |row: &str| {
        SHELL_ENDS.iter().any(|end| row.split_once(*end).is_some_and(|(_, rest)| rest.starts_with(' ')))
    };
    commands.next().is_some_and(|row| is_command(&row))
}

/// Removes white space and zero-width characters, because lines may wrap anywhere.
pub(crate) fn strip_blanks(text: &str) -> String {
    let is_shown = |c: &char| {
        !c.is_whitespace()
            && !matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().filter(is_shown).collect()
}

/// Returns true for a client's placeholder of a long paste.
///
/// Claude Code, Codex, Gemini, Copilot and opencode each have such a placeholder, for example `[Pasted text #1 +12
/// lines]` or `[Pasted Content 1234 chars]`. `found` must not contain blanks. The number of characters or lines in the
/// placeholder must match the text.
fn is_collapsed(found: &str, text: &str) -> bool {
    let Some(inner) = found.strip_prefix("[Past").and_then(|rest| rest.strip_suffix(']')) else {
        return false;
    };
    let count = |unit: &str| {
        let before = inner.strip_suffix(unit)?.rsplit(|c: char| !c.is_ascii_digit()).next()?;
        before.parse::<usize>().ok()
    };
    let breaks = text.matches('\n').count();
    let fits = match (count("chars"), count("lines").or(count("line"))) {
        (Some(characters), _) => characters == text.chars().count(),
        (None, Some(lines)) => lines == breaks || lines == breaks + 1,
        (None, None) => inner.starts_with("edtext#") && breaks == 0,
    };
    // A short line is never collapsed, so the placeholder would belong to another text.
    fits && !inner.contains(['[', ']']) && (breaks > 0 || text.chars().count() >= IDENTIFYING_LENGTH)
}

#[cfg(test)]
#[path = "field_tests.rs"]
mod tests;
