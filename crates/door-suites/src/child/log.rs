//! What a child writes beside its protocol, kept within bounds.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;

/// How large a log file grows before it is put aside; one older file is kept beside it.
const FILE_CAP: u64 = 128 * 1024;

/// How much is kept of a line.
const LINE_CAP: usize = 2 * 1024;

/// How many of the last lines are remembered for error messages.
const TAIL: usize = 20;

/// How much of a line stands in an error message.
const QUOTE_CAP: usize = 300;

/// Takes secrets out of a text.
pub(super) type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// A child's log.
pub(super) struct ChildLog {
    dir: Option<Dir>,
    name: String,
    redact: Option<Redact>,
    clock: Clock,
    tail: Mutex<VecDeque<String>>,
    /// Held while the file is written, so that two streams do not put it aside at once.
    writing: Mutex<()>,
}

impl ChildLog {
    /// A log in `<child>.log` of the folder, or in memory alone.
    pub(super) fn new(dir: Option<Dir>, child: &str, redact: Option<Redact>) -> Self {
        let name = log_name(child);
        let (tail, writing) = (Mutex::default(), Mutex::new(()));
        Self { dir, name, redact, clock: Clock::system(), tail, writing }
    }

    /// Notes lines, which may hold anything.
    pub(super) fn note<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) {
        let now = self.clock.now();
        let mut text = String::new();
        for line in lines {
            let line = self.clean(&String::from_utf8_lossy(&line[..line.len().min(LINE_CAP)]));
            if line.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{} {line}", stamp(now));
            let mut tail = self.tail.lock();
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(line);
        }
        if !text.is_empty() {
            self.write(text.as_bytes());
        }
    }

    /// The last line, short enough to be quoted; empty when there is none.
    pub(super) fn last(&self) -> String {
        self.tail.lock().back().map(|line| line.chars().take(QUOTE_CAP).collect()).unwrap_or_default()
    }

    /// The last lines, oldest first.
    pub(super) fn tail(&self) -> Vec<String> {
        self.tail.lock().iter().cloned().collect()
    }

    /// Forgets the lines of a run that is over; the file keeps them.
    pub(super) fn begin(&self) {
        self.tail.lock().clear();
    }

    /// A text without secrets and without what a terminal would act on.
    pub(super) fn clean(&self, text: &str) -> String {
        let text = plain(text);
        self.redact.as_ref().map_or(text.clone(), |redact| redact(&text))
    }

    /// A log that cannot be written is no reason to stop the child: the reason goes to our own.
    fn write(&self, bytes: &[u8]) {
        let Some(dir) = &self.dir else { return };
        let _writing = self.writing.lock();
        match dir.append(&self.name, bytes) {
            Ok(size) if size > FILE_CAP => self.put_aside(dir),
            Ok(_) => {}
            Err(error) => tracing::warn!(log = %self.name, %error, "a child's log cannot be written"),
        }
    }

    fn put_aside(&self, dir: &Dir) {
        let older = format!("{}.1", self.name);
        let moved = dir.remove(&older).and_then(|_| dir.move_new(&self.name, dir, &older));
        if let Err(error) = moved {
            tracing::warn!(log = %self.name, %error, "a child's log cannot be put aside");
        }
    }
}

/// The file of a child's log. The one that was put aside has `.1` after it.
pub fn log_name(child: &str) -> String {
    format!("{}.log", file_name(child))
}

/// A child's name as the name of a file.
pub(super) fn file_name(child: &str) -> String {
    let name: String = child
        .chars()
        .map(|char| if char.is_alphanumeric() || matches!(char, '-' | '_') { char } else { '_' })
        .collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A text without control characters and without the sequences that colour a terminal or move its cursor.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => match chars.next() {
                // CSI: up to a byte from @ to ~.
                Some('[') => {
                    for char in chars.by_ref() {
                        if matches!(char, '@'..='~') {
                            break;
                        }
                    }
                }
                // OSC and its kin: up to BEL, or ESC and a backslash.
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
