//! Line splitter with a length limit.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum number of bytes per read.
const READ: usize = 64 * 1024;

/// A line without its newline, or a marker for a line that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// A complete line, without its newline.
    Complete(Vec<u8>),
    /// The line exceeded the length limit and was skipped.
    ///
    /// The next line starts after the newline of the skipped line.
    TooLong,
}

/// Line splitter that buffers at most one line and one read.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// Number of bytes at the start of the buffer that are known to contain no newline.
    scanned: usize,
    cap: usize,
    /// True while the splitter skips the rest of a line that was too long.
    skipping: bool,
}

impl Lines {
    pub(crate) fn new(cap: usize) -> Self {
        Self { buffer: Vec::new(), scanned: 0, cap, skipping: false }
    }

    /// Reads more input; returns false at the end of the input.
    pub(crate) async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<bool> {
        self.buffer.reserve(READ);
        Ok(from.read_buf(&mut self.buffer).await? > 0)
    }

    /// Returns the next buffered line.
    pub(crate) fn next(&mut self) -> Option<Line> {
        loop {
            let Some(end) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.buffer.len();
                if self.scanned <= self.cap {
                    return None;
                }
                self.buffer.clear();
                self.scanned = 0;
                let is_first = !std::mem::replace(&mut self.skipping, true);
                return is_first.then_some(Line::TooLong);
            };
            let end = self.scanned + end;
            let rest = self.buffer.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            self.scanned = 0;
            if std::mem::replace(&mut self.skipping, false) {
                continue;
            }
            line.truncate(end);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Some(if line.len() > self.cap { Line::TooLong } else { Line::Complete(line) });
        }
    }

    /// Returns the unterminated last line after the end of the input.
    pub(crate) fn rest(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        (!line.is_empty() && !std::mem::take(&mut self.skipping)).then_some(Line::Complete(line))
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
