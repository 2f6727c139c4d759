//! Lines out of bytes, each of a bounded length.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is read at once.
const READ: usize = 64 * 1024;

/// A line without its end, or what is known of one that was too long to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line.
    Complete(Vec<u8>),
    /// More bytes than a line may have. What follows begins after its end.
    TooLong,
}

/// Cuts what comes in into lines. Keeps at most one line and what was read with it.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// Up to where there is no newline.
    scanned: usize,
    cap: usize,
    /// Whether the rest of a line that was too long is still to come.
    skipping: bool,
}

impl Lines {
    pub(crate) fn new(cap: usize) -> Self {
        Self { buffer: Vec::new(), scanned: 0, cap, skipping: false }
    }

    /// Reads more; false at the end.
    pub(crate) async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<bool> {
        self.buffer.reserve(READ);
        Ok(from.read_buf(&mut self.buffer).await? > 0)
    }

    /// The next line that is there.
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

    /// What stood after the last newline when the input ended.
    pub(crate) fn rest(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        (!line.is_empty() && !std::mem::take(&mut self.skipping)).then_some(Line::Complete(line))
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
