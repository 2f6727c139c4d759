//! What a child writes to its stdout, cut into messages.
//!
//! A message is a line of JSON or a `Content-Length` block; both are read, at any time, however they are split.
//! Anything else is the child talking to itself and is logged.

use std::ops::Range;

use thiserror::Error;

/// How long a block of headers may be. Two short lines are usual.
const HEADERS_CAP: usize = 8 * 1024;

/// How much is kept of a line that is no message.
const LOG_LINE_KEPT: usize = 8 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Cuts bytes into frames.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where the next frame begins; what is before was handed out.
    start: usize,
    /// How far the line at `start` was searched for its end.
    searched: usize,
    cap: usize,
    /// How much of a line that is no message was passed over, while it goes on.
    passed_over: Option<usize>,
}

/// A piece of what a child wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// What looks like JSON.
    Message {
        /// It, without its frame.
        body: &'a [u8],
        /// Whether its length was announced.
        is_announced: bool,
    },
    /// A line of something else.
    Log(&'a [u8]),
}

/// What makes it impossible to read on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum FrameError {
    /// A line without an end.
    #[error("it wrote a line of more than {cap} bytes")]
    TooLong { cap: usize },
    /// A block that is too large.
    #[error("it announced a message of {announced} bytes, and {cap} are allowed")]
    TooLarge { announced: u64, cap: usize },
    /// A length that is none.
    #[error("it sent the header `Content-Length: {value}`, which is not a length")]
    BadLength { value: String },
    /// A block whose headers do not end.
    #[error("it sent more than {HEADERS_CAP} bytes of headers")]
    HeadersTooLong,
    /// A block that does not hold JSON.
    #[error("it sent a block of {length} bytes that is not JSON, so that its `Content-Length` must be wrong")]
    NotJson { length: usize },
}

/// What a frame is.
#[derive(Clone, Copy)]
enum Kind {
    Line,
    Block,
    Log,
}

/// What the headers at the beginning of the bytes say.
enum Headers {
    Incomplete,
    /// A whole block: where its body begins, and how long that is.
    Block {
        body: usize,
        length: usize,
    },
    /// It only looked like headers.
    None,
}

impl Frames {
    /// Begins to read; no message may be longer than `cap`.
    pub(super) fn new(cap: usize) -> Self {
        Self { bytes: Vec::with_capacity(8 * 1024), start: 0, searched: 0, cap, passed_over: None }
    }

    /// Where what was read is to be put.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        // What was handed out makes room first; after a large message its memory is given back.
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

    /// The next frame; `None` until more has been read.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let Some((kind, range)) = self.find()? else { return Ok(None) };
        let bytes = &self.bytes[range];
        Ok(Some(match kind {
            Kind::Line => Frame::Message { body: bytes, is_announced: false },
            Kind::Block => Frame::Message { body: bytes, is_announced: true },
            Kind::Log => Frame::Log(&bytes[..bytes.len().min(LOG_LINE_KEPT)]),
        }))
    }

    /// Where the next frame is. It counts as handed out.
    fn find(&mut self) -> Result<Option<(Kind, Range<usize>)>, FrameError> {
        loop {
            if self.passed_over.is_some() {
                if !self.pass_over()? {
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
            if looks_like_header(rest) {
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

    /// What was written of the last line when there will be no more.
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

    /// A line that has not ended yet: a message may grow up to the cap, anything else is not kept for long.
    fn unfinished_line(&mut self) -> Result<Option<(Kind, Range<usize>)>, FrameError> {
        let from = self.start;
        let length = self.bytes.len() - from;
        if length > self.cap {
            return Err(FrameError::TooLong { cap: self.cap });
        }
        let is_message = matches!(trim_start(&self.bytes[from..]).first(), None | Some(b'{' | b'['));
        if is_message || length <= LOG_LINE_KEPT {
            return Ok(None);
        }
        self.advance(length);
        self.passed_over = Some(length);
        Ok(Some((Kind::Log, from..from + LOG_LINE_KEPT)))
    }

    /// Passes over the rest of a long line; says whether its end was found.
    fn pass_over(&mut self) -> Result<bool, FrameError> {
        let seen = self.passed_over.unwrap_or_default();
        let end = self.find_line_end();
        let until = end.map_or(self.bytes.len(), |end| end + 1);
        let seen = seen + until - self.start;
        self.advance(until - self.start);
        self.passed_over = end.is_none().then_some(seen);
        if seen > self.cap {
            return Err(FrameError::TooLong { cap: self.cap });
        }
        Ok(end.is_some())
    }

    /// Reads the header block at the start of the bytes.
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

/// Whether the bytes begin as a header does, or could once there are more of them.
fn looks_like_header(bytes: &[u8]) -> bool {
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
