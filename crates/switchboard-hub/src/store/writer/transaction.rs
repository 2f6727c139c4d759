//! The transaction of a batch, and the actions that follow its commit.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Connection;
use switchboard_core::{Directory, Door, Message, RoutingRules};
use switchboard_sys::clock::timestamp_from_micros;

use super::Setup;
use crate::config::HubConfig;
use crate::delivery::outbox::{Doors, PendingHandoff};
use crate::directory;
use crate::events::HubEvent;
use crate::journal::chain::{self, RowHash};
use crate::store::rollback::AppendedEntry;
use crate::store::rows::Inserts;

/// Open transaction as a job sees it, with the effects that follow its commit.
pub(crate) struct Transaction<'t> {
    pub(crate) db: &'t Connection,
    pub(crate) inserts: Inserts<'t>,
    pub(crate) config: &'t HubConfig,
    pub(crate) directory: &'t mut CachedDirectory,
    pub(crate) doors: &'t Doors,
    pub(crate) now: Timestamp,
    /// Doors that have older waiting deliveries, which new ones must not overtake.
    pub(crate) waiting: Vec<Door>,
    /// Earliest due time of a delivery for the doors that are open here.
    pub(crate) next_due: Timestamp,
    /// True if only jobs ran that report their own effects: submissions and outcomes of deliveries.
    ///
    /// Any other job may have changed the data that the writer caches, and may have made deliveries due.
    pub(super) is_plain: bool,
    /// Tail of the journal, or `None` until it is read.
    pub(super) tail: Option<JournalTail>,
    /// Index of the running job in its batch.
    pub(super) job: usize,
    /// True while agents may be missing after a recovery.
    pub(super) is_rebuilding: bool,
    pub(crate) post_commit: PostCommit,
    /// Error because of which SQLite rolled back the whole transaction.
    pub(super) failure: Option<Arc<rusqlite::Error>>,
}

impl Transaction<'_> {
    /// Returns the next journal number. No number is assigned twice.
    pub(crate) fn next_seq(&mut self) -> rusqlite::Result<i64> {
        let end = self.tail()?;
        let seq = end.next;
        self.tail = Some(JournalTail { next: seq + 1, ..end });
        Ok(seq)
    }

    /// Schedules the next check for due deliveries, in whole microseconds as stored in the journal.
    pub(crate) fn due_at(&mut self, time: Timestamp) {
        self.next_due = self.next_due.min(timestamp_from_micros(time.as_microsecond()));
    }

    /// Appends a message to the journal.
    pub(crate) fn append(&mut self, seq: i64, message: &Message, digest: &[u8; 32]) -> rusqlite::Result<()> {
        let end = self.tail()?;
        let chain = self.inserts.message(seq, message, self.now, digest, &end.chain)?;
        self.tail = Some(JournalTail { last: seq, chain, ..end });
        self.post_commit.appended.push(AppendedEntry { job: self.job, seq, id: message.id });
        Ok(())
    }

    /// Returns the number of the last message in the journal, or 0 if there is none.
    pub(crate) fn last_seq(&mut self) -> rusqlite::Result<i64> {
        Ok(self.tail()?.last)
    }

    /// Reads the tail of the journal. `floor` is the highest number that a recovery could not copy.
    fn tail(&mut self) -> rusqlite::Result<JournalTail> {
        if let Some(end) = self.tail {
            return Ok(end);
        }
        let end = self
            .db
            .prepare_cached(
                "SELECT coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'floor'), 0), \
                 (SELECT max(seq) FROM messages), (SELECT chain FROM messages ORDER BY seq DESC LIMIT 1)",
            )?
            .query_row([], |row| {
                let (floor, last): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
                let last = last.unwrap_or(0);
                // An unreadable hash is damage of one row, which the audit reports.
                let chain = row.get(2).unwrap_or(chain::GENESIS);
                Ok(JournalTail { next: last.max(floor) + 1, last, chain })
            })?;
        self.tail = Some(end);
        Ok(end)
    }
}

/// Tail of the journal: the next number, and the last message with its hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalTail {
    /// Number of the next message.
    next: i64,
    /// Number of the last message, whose chain hash is `chain`.
    last: i64,
    chain: RowHash,
}

/// Effects that take place once the transaction is on disk.
#[derive(Default)]
pub(crate) struct PostCommit {
    pub(crate) events: Vec<HubEvent>,
    pub(crate) handoffs: Vec<PendingHandoff>,
    /// Entries that were appended to the journal.
    pub(crate) appended: Vec<AppendedEntry>,
    /// True if the transaction wrote anything.
    pub(crate) changed: bool,
}

/// Cached directory of one version; another process may already have written a later version.
#[derive(Debug, Clone, Default)]
pub(crate) struct CachedDirectory {
    version: Option<i64>,
    pub(crate) value: Arc<Directory>,
    /// Aliases and forwards from the settings. They are not stored in the database, so they apply to every version.
    links: Arc<RoutingRules>,
}

impl CachedDirectory {
    /// Creates an empty cache.
    pub(crate) fn with(links: Arc<RoutingRules>) -> Self {
        Self { links, ..Self::default() }
    }

    /// Reloads the directory if any process has changed it; returns true if it was reloaded.
    pub(crate) fn refresh(&mut self, db: &Connection) -> rusqlite::Result<bool> {
        let version = directory::version(db)?;
        if self.version == Some(version) {
            return Ok(false);
        }
        let mut value = directory::load(db)?;
        value.set_routing_rules(self.links.clone());
        self.value = Arc::new(value);
        self.version = Some(version);
        Ok(true)
    }
}

impl PostCommit {
    /// Publishes events and hands over deliveries within this process.
    pub(crate) fn publish(self, setup: &Setup) {
        for event in self.events {
            setup.events.send(event);
        }
        for ready in self.handoffs {
            ready.send();
        }
    }
}
