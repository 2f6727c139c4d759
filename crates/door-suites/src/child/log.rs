//! Bounded log of a child's output that is not part of the protocol.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;

/// Maximum size of a log file before it is rotated; one older file is retained.
const FILE_CAP: u64 = 128 * 1024;

/// Maximum length of a logged line, in bytes.
const LINE_CAP: usize = 2 * 1024;

/// Number of recent lines kept in memory for error messages.
const TAIL_LINES: usize = 20;

/// Maximum length of a quoted line in an error message, in characters.
const QUOTE_CAP: usize = 300;

/// Function that redacts secrets in a text.
pub(super) type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Log of one child's output, in memory and in a file.
pub(super) struct ChildLog {
    dir: Option<Dir>,
    name: String,
    redact: Option<Redact>,
    clock: Clock,
    tail: Mutex<VecDeque<String>>,
    /// Lock held during writes, so that two streams do not rotate the file at the same time.
    writing: Mutex<()>,
}

impl ChildLog {
    /// Creates a log that writes to `<child>.log` in `dir`.
    ///
    /// If `dir` is `None`, the log keeps its lines in memory only.
    pub(super) fn new(dir: Option<Dir>, child: &str, redact: Option<Redact>) -> Self {
        let name = log_name(child);
        let (tail, writing) = (Mutex::default(), Mutex::new(()));
        Self { dir, name, redact, clock: Clock::system(), tail, writing }
    }

    /// Logs lines of arbitrary content, with secrets redacted.
    pub(super) fn note<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) {
        let now = self.clock.now();
        let mut text = String::new();
        for line in lines {
            let line = self.clean(&String::from_utf8_lossy(&line[..line.len().min(LINE_CAP)]));
            if line.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{} {line}", format_time(now));
            let mut tail = self.tail.lock();
            if tail.len() == TAIL_LINES {
                tail.pop_front();
            }
            tail.push_back(line);
        }
        if !text.is_empty() {
            self.write(text.as_bytes());
        }
    }

    /// Returns the last line, shortened for quoting; empty if there is no line.
    pub(super) fn last(&self) -> String {
        self.tail.lock().back().map(|line| line.chars().take(QUOTE_CAP).collect()).unwrap_or_default()
    }

    /// Returns the recent lines, oldest first.
    pub(super) fn tail(&self) -> Vec<String> {
        self.tail.lock().iter().cloned().collect()
    }

    /// Clears the recent lines of the previous run from memory; the file keeps them.
    pub(super) fn start_run(&self) {
        self.tail.lock().clear();
    }

    /// Redacts secrets and strips terminal control sequences from a text.
    pub(super) fn clean(&self, text: &str) -> String {
        let text = strip_control(text);
        self.redact.as_ref().map_or(text.clone(), |redact| redact(&text))
    }

    /// Appends to the log file. A write failure must not stop the child, so it is only reported in Switchboard's own
    /// log.
    fn write(&self, bytes: &[u8]) {
        let Some(dir) = &self.dir else { return };
        let _writing = self.writing.lock();
        match dir.append(&self.name, bytes) {
            Ok(size) if size > FILE_CAP => self.rotate(dir),
            Ok(_) => {}
            Err(error) => tracing::warn!(log = %self.name, %error, "a child's log cannot be written"),
        }
    }

    fn rotate(&self, dir: &Dir) {
        let older = format!("{}.1", self.name);
        let moved = dir.remove(&older).and_then(|_| dir.move_new(&self.name, dir, &older));
        if let Err(error) = moved {
            tracing::warn!(log = %self.name, %error, "a child's log cannot be rotated");
        }
    }
}

/// Returns the name of a child's log file. The rotated file has the suffix `.1`.
pub fn log_name(child: &str) -> String {
    format!("{}.log", file_name(child))
}

/// Converts a child's name into a file name.
pub(super) fn file_name(child: &str) -> String {
    let name: String = child
        .chars()
        .map(|char| if char.is_alphanumeric() || matches!(char, '-' | '_') { char } else { '_' })
        .collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

fn format_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Removes control characters and terminal escape sequences.
fn strip_control(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => match chars.next() {
                // A CSI sequence ends with a byte from `@` to `~`.
                Some('[') => {
                    for char in chars.by_ref() {
                        if matches!(char, '@'..='~') {
                            break;
                        }
                    }
                }
                // OSC and similar sequences end with BEL, or with ESC and a backslash.
                Some(']' | 'P' | '_' | '^') => {
                    while let Some(char) = chars.next() {
                        if char == '\u{7}' || (char == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\t' => out.push(' '),
            char if char.is_control() => {}
            char => out.push(char),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
