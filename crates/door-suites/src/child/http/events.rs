//! Parser for server-sent events (SSE), per the HTML standard ("Interpreting an event stream").

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::child) struct Event {
    /// Event type; empty means `message`.
    pub(in crate::child) event: String,
    /// Event data.
    pub(in crate::child) data: Vec<u8>,
}

/// Error: an event exceeds the size limit.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::child) struct TooLarge;

/// Incremental parser for server-sent events.
#[derive(Debug)]
pub(in crate::child) struct EventParser {
    bytes: Vec<u8>,
    start: usize,
    searched: usize,
    cap: usize,
    event: Event,
    has_data: bool,
    /// Id of the last event.
    pub(in crate::child) last_id: Option<String>,
    /// Reconnection delay requested by the server, in milliseconds.
    pub(in crate::child) retry: Option<u64>,
}

impl EventParser {
    pub(in crate::child) fn new(cap: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            cap,
            event: Event::default(),
            has_data: false,
            last_id: None,
            retry: None,
        }
    }

    /// Appends received bytes.
    pub(in crate::child) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete event, or `None` if more bytes are needed.
    pub(in crate::child) fn next(&mut self) -> Result<Option<Event>, TooLarge> {
        loop {
            let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let Some(at) = self.bytes[self.searched..].iter().position(ends) else {
                self.searched = self.bytes.len();
                return if self.bytes.len() - self.start > self.cap { Err(TooLarge) } else { Ok(None) };
            };
            let end = self.searched + at;
            // A line ends in CR, LF or CRLF. After a CR at the end of the buffer, wait for the next byte.
            let next = match self.bytes.get(end..end + 2) {
                Some(b"\r\n") => end + 2,
                None if self.bytes[end] == b'\r' => {
                    self.searched = end;
                    return Ok(None);
                }
                _ => end + 1,
            };
            let line = self.bytes[self.start..end].to_vec();
            (self.start, self.searched) = (next, next);
            if line.is_empty() {
                let (event, had_data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.has_data));
                if had_data {
                    return Ok(Some(event));
                }
                continue;
            }
            self.parse_line(&line)?;
        }
    }

    fn parse_line(&mut self, line: &[u8]) -> Result<(), TooLarge> {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match &line[..colon] {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                if self.event.data.len() + value.len() > self.cap {
                    return Err(TooLarge);
                }
                self.event.data.extend_from_slice(value);
            }
            b"event" => self.event.event = text(),
            b"id" if !value.contains(&0) => self.last_id = Some(text()).filter(|id| !id.is_empty()),
            b"retry" => self.retry = text().parse().ok().or(self.retry),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
