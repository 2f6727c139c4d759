//! Cursors that survive a restart: how far the journal was published and how far the stream was ingested.

use std::fmt;
use std::str::FromStr;

use switchboard_core::Door;
use switchboard_hub::{Hub, LINK};

use crate::error::NatsError;
use crate::interest::Interest;

/// Note key of the publish cursor.
pub(crate) const CURSOR: &str = "cursor";

/// Note key of the intake cursor.
const INGESTED: &str = "ingested";

/// Publish cursor: how far the journal was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    /// Journal sequence up to which every message is either in the stream or not meant for the stream.
    pub(crate) journal: i64,
    /// Stream sequence that is lower than the stream sequences of all messages after `journal`.
    pub(crate) sequence: u64,
    /// Identity of the stream that `sequence` belongs to: its creation time in nanoseconds.
    pub(crate) stream: i128,
}

impl Cursor {
    /// Loads the cursor of the previous run.
    ///
    /// A first run starts at the end of the journal, because older messages were not written for other hubs.
    pub(crate) async fn load(hub: &Hub) -> Result<Self, NatsError> {
        let notes = hub.notes(Door::Nats).all(LINK).await?;
        let noted = notes.iter().find(|(key, _)| key == CURSOR).map(|(_, value)| value.parse());
        if let Some(Ok(cursor)) = noted {
            return Ok(cursor);
        }
        let journal = hub.journal().newest(1).await?.items.last().map_or(0, |last| last.seq);
        let cursor = Self { journal, ..Self::default() };
        hub.notes(Door::Nats).put(LINK, CURSOR.to_owned(), Some(cursor.to_string())).await?;
        Ok(cursor)
    }
}

/// Intake cursor: how far the stream was ingested, and with which interest.
///
/// The cursor is written after the journal has the messages and the receipts were sent. A crash therefore causes
/// redelivery but skips no message. Redelivered messages come first and in order, and the journal deduplicates them by
/// id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ingested {
    /// Identity of the stream that `sequence` belongs to: its creation time in nanoseconds.
    pub(crate) stream: i128,
    /// Stream sequence up to which the journal has every message that the interest covers.
    pub(crate) sequence: u64,
    /// Groups that the hub received up to `sequence`.
    pub(crate) interest: Interest,
}

impl Ingested {
    /// Loads the cursor of the previous run.
    ///
    /// A first run starts at the beginning of the stream for direct messages, and without groups; each group that is
    /// added later starts at the end of the stream. A stream that was recreated is read from its beginning.
    pub(crate) async fn load(hub: &Hub, stream: i128) -> Result<Self, NatsError> {
        let noted = hub.notes(Door::Nats).get(LINK, INGESTED).await?;
        let known = noted.and_then(|text| text.parse::<Self>().ok()).unwrap_or_default();
        let sequence = if known.stream == stream { known.sequence } else { 0 };
        Ok(Self { stream, sequence, ..known })
    }

    /// Saves the cursor, ordered after everything that the hub received before it.
    pub(crate) async fn save(&self, hub: &Hub) -> Result<(), NatsError> {
        Ok(hub.relay().put_cursor(INGESTED, self.to_string()).await?)
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
    fn publish_cursor_round_trips() {
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
