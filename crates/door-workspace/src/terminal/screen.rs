//! Screen contents of a program in a terminal, for the detection of input fields.

use std::num::NonZeroU16;

/// Snapshot of a terminal's screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screen {
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Row and column of the cursor, counted from 0.
    ///
    /// A program that hides its cursor still leaves it in the input field.
    pub(crate) cursor: (usize, usize),
    pub(crate) mode: InputMode,
}

/// One column of a row. The second column of a wide character is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// True if the text is dim or grey, like placeholders and suggestions.
    pub(crate) is_faint: bool,
    /// True if the cell has a background other than the terminal's default.
    pub(crate) is_filled: bool,
}

/// The way in which a program accepts input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputMode {
    /// The program accepts bracketed paste (DECSET 2004).
    Paste,
    /// The terminal edits and echoes lines, and a process waits for a line.
    Lines,
    /// The program reads key by key, or currently not at all.
    Keys,
}

impl Screen {
    /// Returns the way in which the program accepts input.
    pub fn mode(&self) -> InputMode {
        self.mode
    }

    /// Returns the text of a row without trailing blanks.
    pub(crate) fn row(&self, row: usize) -> String {
        self.text(row, 0, usize::MAX).trim_end().to_owned()
    }

    /// Returns the text of a row between two columns.
    pub(crate) fn text(&self, row: usize, from: usize, to: usize) -> String {
        let cells = self.rows.get(row).map_or(&[][..], Vec::as_slice);
        let to = to.min(cells.len());
        let cells = cells.get(from.min(to)..to).unwrap_or_default();
        cells.iter().map(|cell| cell.text.as_str()).collect()
    }

    /// Returns the text of the cursor's row before the cursor.
    pub(crate) fn before_cursor(&self) -> String {
        self.text(self.cursor.0, 0, self.cursor.1)
    }

    /// Returns true if every cell of a row is filled.
    pub(crate) fn is_filled(&self, row: usize) -> bool {
        self.rows.get(row).is_some_and(|cells| cells.iter().all(|cell| cell.is_filled))
    }

    /// Returns the cells from the cursor to the end of its row.
    pub(crate) fn after_cursor(&self) -> &[Cell] {
        let row = self.rows.get(self.cursor.0).map_or(&[][..], Vec::as_slice);
        row.get(self.cursor.1..).unwrap_or_default()
    }
}

impl Cell {
    pub(crate) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
}

/// A terminal emulator that parses a program's output.
pub struct Emulator {
    parser: vt100::Parser,
}

impl Emulator {
    /// Creates an emulator with an empty screen of this size.
    pub fn new(rows: u16, columns: u16) -> Self {
        let (rows, columns) = size(rows, columns);
        Self { parser: vt100::Parser::new(rows, columns, 0) }
    }

    /// Parses the next chunk of output, which may be split anywhere.
    pub fn read(&mut self, output: &[u8]) {
        self.parser.process(output);
    }

    /// Resizes the screen to the size of its window.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        let (rows, columns) = size(rows, columns);
        self.parser.set_size(rows, columns);
    }

    /// Returns true if the program asked for bracketed paste.
    pub fn uses_bracketed_paste(&self) -> bool {
        self.parser.screen().bracketed_paste()
    }

    /// Returns a snapshot of the current screen.
    ///
    /// `reads_lines` means that the terminal edits lines and a process waits for one.
    pub fn screen(&self, reads_lines: bool) -> Screen {
        let screen = self.parser.screen();
        let (rows, columns) = screen.size();
        let row = |row| (0..columns.get()).map(|column| cell(screen.cell(row, column))).collect();
        let (cursor_row, cursor_column) = screen.cursor_position();
        let mode = match (screen.bracketed_paste(), reads_lines) {
            (true, _) => InputMode::Paste,
            (false, true) => InputMode::Lines,
            (false, false) => InputMode::Keys,
        };
        Screen {
            rows: (0..rows.get()).map(row).collect(),
            cursor: (usize::from(cursor_row), usize::from(cursor_column)),
            mode,
        }
    }

    /// Builds a screen from the coloured rows and the cursor of another emulator.
    pub(crate) fn redraw(rows: &str, size: (u16, u16), cursor: (usize, usize), mode: InputMode) -> Screen {
        let mut emulator = Self::new(size.0, size.1);
        for (row, text) in rows.lines().take(usize::from(size.0)).enumerate() {
            emulator.read(format!("\x1b[{};1H", row + 1).as_bytes());
            emulator.read(text.as_bytes());
        }
        Screen { cursor, mode, ..emulator.screen(false) }
    }
}

/// Clamps a size to the minimum that has room for a wide character.
fn size(rows: u16, columns: u16) -> (NonZeroU16, NonZeroU16) {
    let at_least = |size: u16, least: u16| NonZeroU16::new(size.max(least)).unwrap_or(NonZeroU16::MIN);
    (at_least(rows, 2), at_least(columns, 4))
}

fn cell(cell: Option<&vt100::Cell>) -> Cell {
    let Some(cell) = cell else {
        return Cell { text: " ".to_owned(), is_faint: false, is_filled: false };
    };
    let text = match (cell.has_contents(), cell.is_wide_continuation()) {
        (true, _) => cell.contents().to_owned(),
        (false, true) => String::new(),
        (false, false) => " ".to_owned(),
    };
    let is_filled = cell.bgcolor() != vt100::Color::Default;
    Cell { text, is_faint: cell.dim() || is_grey(cell.fgcolor()), is_filled }
}

/// Returns true if a colour is grey.
///
/// These are the greys of the 256 colours, bright black, and RGB colours between black and white.
fn is_grey(colour: vt100::Color) -> bool {
    match colour {
        vt100::Color::Default => false,
        vt100::Color::Idx(index) => matches!(index, 8 | 59 | 102 | 145 | 236..=250),
        vt100::Color::Rgb(red, green, blue) => {
            let (low, high) = (red.min(green).min(blue), red.max(green).max(blue));
            high - low <= 24 && (40..=190).contains(&high)
        }
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
