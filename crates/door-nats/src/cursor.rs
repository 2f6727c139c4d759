//! Cursors: how far the journal was published, and how far the stream was ingested, from one run to the next.

use std::fmt;
use std::str::FromStr;

use switchboard_core::Door;
use switchboard_hub::{Hub, LINK};

use crate::error::NatsError;
use crate::interest::Interest;

/// The key of the cursor.
pub(crate) const CURSOR: &str = "cursor";

/// The key of how far the stream was ingested.
const INGESTED: &str = "ingested";

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
        hub.put_note(Door::Nats, LINK, CURSOR.to_owned(), Some(cursor.to_string())).await?;
        Ok(cursor)
    }
}

/// How far the stream was ingested, and by which interest.
///
/// Written after the journal has the messages and their hubs were told, so a crash repeats messages and skips none. The
/// repeated ones come first and in order, and the journal knows them by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ingested {
    /// Which stream the sequence belongs to: when it was made, in nanoseconds.
    pub(crate) stream: i128,
    /// Everything up to this sequence that the interest covers is in the journal.
    pub(crate) sequence: u64,
    /// The groups that were received.
    pub(crate) interest: Interest,
}

impl Ingested {
    /// The cursor of the run before. Without one, the beginning of the stream for what is written to this hub, and no
    /// groups yet: those begin at the end of the stream. A stream that was made again is read from its beginning.
    pub(crate) async fn load(hub: &Hub, stream: i128) -> Result<Self, NatsError> {
        let noted = hub.get_note(Door::Nats, LINK, INGESTED).await?;
        let known = noted.and_then(|text| text.parse::<Self>().ok()).unwrap_or_default();
        let sequence = if known.stream == stream { known.sequence } else { 0 };
        Ok(Self { stream, sequence, ..known })
    }

    /// Writes the cursor, after everything that the hub was given before.
    pub(crate) async fn save(&self, hub: &Hub) -> Result<(), NatsError> {
        Ok(hub.put_link_cursor(INGESTED, self.to_string()).await?)
    }
}

impl fmt::Display for Ingested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.stream, self.sequence, self.interest)
    }
}

impl FromStr for Ingested {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(' ');
        let mut next = || parts.next().unwrap_or_default();
        let (stream, sequence) = (next().parse()?, next().parse()?);
        Ok(Self { stream, sequence, interest: Interest::parse(parts) })
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

    #[test]
    fn ingested_cursor_round_trips() {
        for groups in ["", "all", "all channel.general team.backend"] {
            let interest = Interest::parse(groups.split(' '));
            let ingested = Ingested { stream: 1_700_000_000_000_000_001, sequence: 9, interest };
            assert_eq!(ingested.to_string().parse(), Ok(ingested), "{groups}");
        }
        assert!("7".parse::<Ingested>().is_err());
    }
}
