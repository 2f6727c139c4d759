//! Snapshot reads: several reads in one read transaction.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Connection;
use switchboard_core::{AgentId, Directory, Door};

use super::Hub;
use super::directory::read_directory;
use crate::error::HubError;
use crate::journal::maintenance;
use crate::journal::reads::{self, MailboxMessage, MailboxQuery, Page, Part};

/// Snapshot of the hub. All reads through the view belong to one read transaction.
pub struct View<'a> {
    db: &'a Connection,
    directory: Arc<Directory>,
    now: Timestamp,
}

impl View<'_> {
    /// Returns the directory.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Counts the messages in a part of an agent's mailbox, up to `most`.
    pub fn count(&self, agent: &AgentId, part: Part, most: usize) -> Result<usize, HubError> {
        reads::count(self.db, &self.directory.canonical(agent), part, most, self.now)
    }

    /// Returns a page of an agent's mailbox, or `None` if its messages exceed `most_bytes`.
    ///
    /// Such a page takes too long to read and check on a thread that must not block: read it with
    /// [`Mailboxes::page`](super::Mailboxes::page).
    pub fn mailbox(
        &self,
        query: &MailboxQuery,
        most_bytes: usize,
    ) -> Result<Option<Page<MailboxMessage>>, HubError> {
        let query = MailboxQuery { agent: self.directory.canonical(&query.agent), ..*query };
        reads::mailbox_within(self.db, &query, self.now, most_bytes)
    }

    /// Returns the value of one note of a door.
    pub fn get_note(&self, door: Door, topic: &str, key: &str) -> Result<Option<String>, HubError> {
        maintenance::get_note(self.db, door, topic, key)
    }

    /// Lists a door's notes under a topic, oldest first.
    pub fn notes(&self, door: Door, topic: &str) -> Result<Vec<(String, String)>, HubError> {
        maintenance::notes(self.db, door, topic)
    }
}

/// Boxed closure that reads from a snapshot. It may run twice.
type ViewWork<T> = Box<dyn Fn(&View<'_>) -> Result<T, HubError> + Send>;

impl Hub {
    /// Reads from one snapshot, on this thread if nothing can block it and otherwise on another.
    ///
    /// `work` may run twice, and should read few rows.
    pub async fn view<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: Fn(&View<'_>) -> Result<T, HubError> + Send + 'static,
    {
        self.view_boxed(Box::new(work)).await
    }

    /// Implements [`Hub::view`], compiled once per result type instead of once per closure.
    async fn view_boxed<T: Send + 'static>(&self, work: ViewWork<T>) -> Result<T, HubError> {
        let (cached, now) = (&self.inner.directory, self.now());
        let found = self.try_read(&|db| {
            in_one_transaction(db, || {
                let directory = read_directory(cached, db)?;
                work(&View { db, directory, now })
            })
        });
        if let Some(seen) = found {
            return Ok(seen);
        }
        let hub = self.clone();
        self.read(move |db| {
            in_one_transaction(db, || {
                let directory = read_directory(&hub.inner.directory, db)?;
                work(&View { db, directory, now })
            })
        })
        .await
    }
}

/// Runs `reads` in one read transaction.
fn in_one_transaction<T>(
    db: &Connection,
    reads: impl FnOnce() -> Result<T, HubError>,
) -> Result<T, HubError> {
    db.prepare_cached("BEGIN")?.execute([])?;
    let read = reads();
    // After an error, SQLite may already have ended the transaction.
    if !db.is_autocommit() {
        db.prepare_cached("COMMIT")?.execute([])?;
    }
    read
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
