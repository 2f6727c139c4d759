//! Splits a child's stdout into messages (framing).
//!
//! A message is either one line of JSON or a block with a `Content-Length` header. Both are accepted at any time, in
//! chunks of any size. All other output is logged.

use std::ops::Range;

use thiserror::Error;

/// Maximum size of a header block, in bytes. A typical block has two short lines.
const HEADERS_CAP: usize = 8 * 1024;

/// Maximum number of bytes that are logged of a line that is not a message.
const LOG_LINE_CAP: usize = 8 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Incremental reader that splits bytes into frames.
#[derive(Debug)]
pub(super) struct FrameReader {
    bytes: Vec<u8>,
    /// Start of the next frame; earlier bytes were already returned.
    start: usize,
    /// Position up to which the line at `start` was already searched for a line break.
    searched: usize,
    cap: usize,
    /// Number of bytes skipped so far of an over-long log line whose end was not yet found.
    skipped: Option<usize>,
}

/// One frame of a child's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A message: a frame whose body starts like JSON.
    Message {
        /// The body without its framing.
        body: &'a [u8],
        /// True if the frame had a `Content-Length` header.
        is_announced: bool,
    },
    /// A line that is not a message.
    Log(&'a [u8]),
}

/// Unrecoverable framing error: the stream cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum FrameError {
    /// A line is longer than the cap.
    #[error("it wrote a line of more than {cap} bytes")]
    TooLong { cap: usize },
    /// A `Content-Length` header announces more than the cap.
    #[error("it announced a message of {announced} bytes, more than the {cap} allowed")]
    TooLarge { announced: u64, cap: usize },
    /// The value of `Content-Length` is not a number.
    #[error("it sent the header `Content-Length: {value}`, which is not a length")]
    BadLength { value: String },
    /// A header block is longer than the cap.
    #[error("it sent more than {HEADERS_CAP} bytes of headers")]
    HeadersTooLong,
    /// The body of a `Content-Length` block is not JSON.
    #[error("it sent a block of {length} bytes that is not JSON, so that its `Content-Length` must be wrong")]
    NotJson { length: usize },
}

/// Kind of a frame.
#[derive(Clone, Copy)]
enum Kind {
    Line,
    Block,
    Log,
}

/// Result of parsing a header block.
enum Headers {
    Incomplete,
    /// A complete header block, with the start and the length of the body.
    Block {
        body: usize,
        length: usize,
    },
    /// The bytes are not a header block.
    None,
}

impl FrameReader {
    /// Creates a reader that rejects messages longer than `cap`.
    pub(super) fn new(cap: usize) -> Self {
        Self { bytes: Vec::with_capacity(8 * 1024), start: 0, searched: 0, cap, skipped: None }
    }

    /// Returns the buffer for the next read.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        // First remove the bytes that were already returned, and free the memory after a large message.
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
            if self.bytes.capacity() > 1024 * 1024 && self.bytes.len() < 64 * 1024 {
                self.bytes.shrink_to(64 * 1024);
            }
        }
        &mut self.bytes
    }

    /// Returns the next frame, or `None` if more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let Some((kind, range)) = self.find()? else { return Ok(None) };
        let bytes = &self.bytes[range];
        Ok(Some(match kind {
            Kind::Line => Frame::Message { body: bytes, is_announced: false },
            Kind::Block => Frame::Message { body: bytes, is_announced: true },
            Kind::Log => Frame::Log(&bytes[..bytes.len().min(LOG_LINE_CAP)]),
        }))
    }

    /// Finds the next frame and advances past it.
    fn find(&mut self) -> Result<Option<(Kind, Range<usize>)>, FrameError> {
        loop {
            if self.skipped.is_some() {
                if !self.skip_line()? {
                    return Ok(None);
                }
                continue;
            }
            let rest = &self.bytes[self.start..];
            if rest.starts_with(BOM) {
                self.advance(BOM.len());
                continue;
            }
            if BOM.starts_with(rest) {
                return Ok(None);
            }
            if may_be_header(rest) {
                match self.headers()? {
                    Headers::Incomplete => return Ok(None),
                    Headers::Block { body, length } => {
                        let from = self.start + body;
                        if self.bytes.len() < from + length {
                            return Ok(None);
                        }
                        self.advance(body + length);
                        return Ok(Some((Kind::Block, from..from + length)));
                    }
                    Headers::None => {}
                }
            }
            let Some(end) = self.find_line_end() else { return self.unfinished_line() };
            let from = end - trim_start(&self.bytes[self.start..end]).len();
            let until = from + trim(&self.bytes[from..end]).len();
            self.advance(end + 1 - self.start);
            match self.bytes[from..until].first() {
                None => {}
                Some(b'{' | b'[') if until - from <= self.cap => return Ok(Some((Kind::Line, from..until))),
                Some(b'{' | b'[') => return Err(FrameError::TooLong { cap: self.cap }),
                Some(_) => return Ok(Some((Kind::Log, from..until))),
            }
        }
    }

    /// Returns the remaining bytes: the unterminated last line, at the end of the stream.
    pub(super) fn rest(&self) -> &[u8] {
        trim(&self.bytes[self.start..])
    }

    fn advance(&mut self, by: usize) {
        self.start += by;
        self.searched = self.start;
    }

    fn find_line_end(&mut self) -> Option<usize> {
        let found = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n');
        if found.is_none() {
            self.searched = self.bytes.len();
        }
        found.map(|at| self.searched + at)
    }

    /// Handles a line whose end was not yet received. A message may grow up to the cap; any other line is truncated.
    fn unfinished_line(&mut self) -> Result<Option<(Kind, Range<usize>)>, FrameError> {
        let from = self.start;
        let length = self.bytes.len() - from;
        if length > self.cap {
            return Err(FrameError::TooLong { cap: self.cap });
        }
        let is_message = matches!(trim_start(&self.bytes[from..]).first(), None | Some(b'{' | b'['));
        if is_message || length <= LOG_LINE_CAP {
            return Ok(None);
        }
        self.advance(length);
        self.skipped = Some(length);
        Ok(Some((Kind::Log, from..from + LOG_LINE_CAP)))
    }

    /// Skips the rest of an over-long line; returns true if the end of the line was found.
    fn skip_line(&mut self) -> Result<bool, FrameError> {
        let seen = self.skipped.unwrap_or_default();
        let end = self.find_line_end();
        let until = end.map_or(self.bytes.len(), |end| end + 1);
        let seen = seen + until - self.start;
        self.advance(until - self.start);
        self.skipped = end.is_none().then_some(seen);
        if seen > self.cap {
            return Err(FrameError::TooLong { cap: self.cap });
        }
        Ok(end.is_some())
    }

    /// Parses the header block at `start`.
    fn headers(&self) -> Result<Headers, FrameError> {
        let rest = &self.bytes[self.start..];
        let mut at = 0;
        let mut length = None;
        while let Some(end) = rest[at..].iter().position(|&byte| byte == b'\n') {
            let line = trim(&rest[at..at + end]);
            at += end + 1;
            if line.is_empty() {
                return Ok(length.map_or(Headers::None, |length| Headers::Block { body: at, length }));
            }
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { return Ok(Headers::None) };
            if !line[..colon].iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
                return Ok(Headers::None);
            }
            if line[..colon].eq_ignore_ascii_case(b"content-length") {
                length = Some(self.length(trim(&line[colon + 1..]))?);
            }
            if at > HEADERS_CAP {
                return Err(FrameError::HeadersTooLong);
            }
        }
        if rest.len() - at > HEADERS_CAP {
            return if length.is_some() { Err(FrameError::HeadersTooLong) } else { Ok(Headers::None) };
        }
        Ok(Headers::Incomplete)
    }

    fn length(&self, value: &[u8]) -> Result<usize, FrameError> {
        let text = String::from_utf8_lossy(&value[..value.len().min(64)]).into_owned();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FrameError::BadLength { value: text });
        }
        let announced = text.parse().unwrap_or(u64::MAX);
        usize::try_from(announced)
            .ok()
            .filter(|&length| length <= self.cap)
            .ok_or(FrameError::TooLarge { announced, cap: self.cap })
    }
}

/// Returns true if the bytes start a header block, or may do so once more bytes arrive.
fn may_be_header(bytes: &[u8]) -> bool {
    const PREFIX: &[u8] = b"content-";
    let length = bytes.len().min(PREFIX.len());
    length > 0 && bytes[..length].eq_ignore_ascii_case(&PREFIX[..length])
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_start()
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
