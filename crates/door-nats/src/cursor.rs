//! How far the journal has been passed on, and how far the stream was read, from one run to the next.

use std::fmt;
use std::str::FromStr;

use switchboard_core::Door;
use switchboard_hub::{Hub, LINK};

use crate::error::NatsError;

/// The key of the cursor.
pub(crate) const CURSOR: &str = "cursor";

/// How far the journal has been passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    /// Everything up to this number of the journal is in the stream, or not for it.
    pub(crate) journal: i64,
    /// No message after that number has a lower sequence in the stream than this, or the same.
    pub(crate) sequence: u64,
    /// Which stream that sequence belongs to: when it was made, in nanoseconds.
    pub(crate) stream: i128,
}

impl Cursor {
    /// The cursor of the run before. Without one, the end of the journal: what was said before the link was made is
    /// nobody else's business.
    pub(crate) async fn load(hub: &Hub) -> Result<Self, NatsError> {
        let notes = hub.notes(Door::Nats, LINK).await?;
        let noted = notes.iter().find(|(key, _)| key == CURSOR).map(|(_, value)| value.parse());
        if let Some(Ok(cursor)) = noted {
            return Ok(cursor);
        }
        let journal = hub.newest(1).await?.items.last().map_or(0, |last| last.seq);
        let cursor = Self { journal, ..Self::default() };
        hub.note(Door::Nats, LINK, CURSOR.to_owned(), Some(cursor.to_string())).await?;
        Ok(cursor)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.journal, self.sequence, self.stream)
    }
}

impl FromStr for Cursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(' ');
        let mut next = || parts.next().unwrap_or_default();
        Ok(Self { journal: next().parse()?, sequence: next().parse()?, stream: next().parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let cursor = Cursor { journal: 7, sequence: 9, stream: 1_700_000_000_000_000_001 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert!("7".parse::<Cursor>().is_err());
    }
}
