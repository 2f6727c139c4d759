//! Line reader with a length limit.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// A line of input, without its line break.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The complete line.
    Whole(Vec<u8>),
    /// The line exceeded the limit and was skipped.
    TooLong,
}

/// Reader of lines of at most `limit` bytes, which never buffers more than that.
pub(crate) struct Lines<R> {
    input: R,
    limit: usize,
    is_first: bool,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self { input, limit, is_first: true }
    }

    /// Returns the next line that is not blank; `None` at the end.
    ///
    /// Text after the last line break counts as a line, because a script that pipes in a single message may omit the
    /// line break. Not cancel safe: a partial line would be lost.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let Some(line) = self.next_raw().await? else { return Ok(None) };
            let Line::Whole(mut bytes) = line else { return Ok(Some(line)) };
            // Strip the byte order mark, which some editors and shells write at the start of a file.
            if std::mem::take(&mut self.is_first) && bytes.starts_with(b"\xef\xbb\xbf") {
                bytes.drain(..3);
            }
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some(Line::Whole(bytes)));
            }
        }
    }

    async fn next_raw(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut is_too_long = false;
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(match is_too_long {
                    true => Some(Line::TooLong),
                    false if line.is_empty() => None,
                    false => Some(Line::Whole(line)),
                });
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if is_too_long || line.len() + part.len() > self.limit {
                is_too_long = true;
                line = Vec::new();
            } else {
                line.extend_from_slice(part);
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.input.consume(consumed);
            if end.is_some() {
                return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(line) }));
            }
        }
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
