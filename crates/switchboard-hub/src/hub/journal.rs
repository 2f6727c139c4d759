//! The journal of accepted messages: reads, search, retention, audit and repair.

use jiff::Timestamp;
use switchboard_core::{MessageId, Name, NativeId, Receipt};

use super::Hub;
use crate::error::HubError;
use crate::journal::reads::{self, Page};
use crate::journal::search;
use crate::journal::submit::{self, Draft, Prepared};
use crate::journal::{audit, maintenance, repair};
use crate::store::rows::Stored;

/// Reads, searches, prunes and audits the journal of accepted messages.
#[derive(Clone, Copy)]
pub struct Journal<'h> {
    pub(super) hub: &'h Hub,
}

impl Journal<'_> {
    /// Returns a message by id.
    pub async fn message(self, id: MessageId) -> Result<Option<Stored>, HubError> {
        if let Some(found) = self.hub.try_read(&|db| reads::message(db, id)) {
            return Ok(found);
        }
        self.hub.read(move |db| reads::message(db, id)).await
    }

    /// Returns a message with its receipt.
    pub async fn receipt(self, id: MessageId) -> Result<Option<(Stored, Receipt)>, HubError> {
        self.hub.read(move |db| reads::receipt(db, id)).await
    }

    /// Returns a page of the journal after a cursor, in order of acceptance.
    pub async fn entries(self, after: i64, limit: usize) -> Result<Page<Stored>, HubError> {
        self.hub.read(move |db| reads::journal(db, after, limit)).await
    }

    /// Returns the newest messages of the journal, oldest first.
    pub async fn newest(self, count: usize) -> Result<Page<Stored>, HubError> {
        self.hub.read(move |db| reads::newest(db, count)).await
    }

    /// Returns the newest messages of one swarm, oldest first. `scope` is the prefix of its native ids.
    pub async fn newest_of_swarm(
        self,
        scope: String,
        realm: Name,
        count: usize,
    ) -> Result<Page<Stored>, HubError> {
        self.hub.read(move |db| reads::newest_of_swarm(db, &scope, &realm, count)).await
    }

    /// Returns the first journal number after everything that retention has removed; 0 if it has removed
    /// nothing.
    pub async fn oldest_retained(self) -> Result<i64, HubError> {
        self.hub.read(reads::oldest_retained).await
    }

    /// Returns the conversation of a message.
    pub async fn thread(self, root: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.hub.read(move |db| reads::thread(db, root, limit)).await
    }

    /// Returns the replies to a message.
    pub async fn replies(self, id: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.hub.read(move |db| reads::replies(db, id, limit)).await
    }

    /// Searches for the newest messages that contain all terms, older than `before`.
    pub async fn search(
        self,
        words: &str,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<Stored>, HubError> {
        self.search_with(words, before, limit, |_| ()).await
    }

    /// Like [`search`](Self::search), with a callback for the number of messages that are still to be indexed.
    ///
    /// The newest messages are indexed first, and the search ends as soon as they fill the page.
    pub async fn search_with(
        self,
        words: &str,
        before: Option<i64>,
        limit: usize,
        progress: impl Fn(u64),
    ) -> Result<Page<Stored>, HubError> {
        let mut coverage = self.hub.read(search::Coverage::read).await?;
        // A search after each step would cost more than indexing, so the steps double.
        let mut steps = 1;
        loop {
            let query = words.to_owned();
            let mut page = self.hub.read(move |db| reads::search(db, &query, before, limit)).await?;
            let oldest = page.items.last().filter(|_| page.items.len() == limit).map(|stored| stored.seq);
            let missing = coverage.missing();
            if missing == 0 || coverage.answers(before, oldest) {
                page.more |= missing > 0 && oldest.is_some();
                return Ok(page);
            }
            for _ in 0..steps {
                if coverage.missing() == 0 {
                    break;
                }
                progress(u64::try_from(coverage.missing()).unwrap_or(0));
                coverage = match self.hub.write(|tx| search::catch_up(tx, search::STEP)).await {
                    // The messages that are indexed already can still be found.
                    Err(error) if error.is_disk() => return Ok(page),
                    caught_up => caught_up?,
                };
            }
            steps *= 2;
        }
    }

    /// Indexes a portion of the messages that the search does not cover yet, if this process has added some and
    /// enough are missing for a transaction.
    pub(crate) async fn index_portion(self) {
        if !self.hub.has_changed_mail() {
            return;
        }
        let due = match self.hub.try_read(&search::Coverage::read) {
            Some(coverage) => Ok(coverage),
            None => self.hub.read(search::Coverage::read).await,
        };
        if due.is_ok_and(search::Coverage::is_due) {
            self.hub.inner.writer.post(|tx| search::catch_up(tx, search::PORTION).map(drop));
        }
    }

    /// Returns the next `most` messages of the journal after a number, for retention.
    pub async fn retention_candidates(
        self,
        after: i64,
        most: usize,
    ) -> Result<Vec<maintenance::RetentionCandidate>, HubError> {
        self.hub.read(move |db| maintenance::retention_candidates(db, after, most)).await
    }

    /// Removes messages from the journal, except those that a recipient still needs; returns how many.
    pub async fn remove_entries(self, entries: Vec<i64>) -> Result<usize, HubError> {
        self.hub.write(move |tx| maintenance::prune(tx, entries)).await
    }

    /// Removes all messages accepted before `before` that no recipient still needs; returns how many.
    pub async fn prune(self, before: Timestamp) -> Result<usize, HubError> {
        /// Messages that one transaction removes, so that senders do not wait long.
        const STEP: usize = 500;
        let (mut after, mut removed) = (0, 0);
        loop {
            let page = self.retention_candidates(after, STEP).await?;
            let Some(last) = page.last() else { return Ok(removed) };
            after = last.seq;
            let is_old = |aged: &&maintenance::RetentionCandidate| aged.is_done && aged.accepted_at < before;
            let old: Vec<i64> = page.iter().filter(is_old).map(|aged| aged.seq).collect();
            if !old.is_empty() {
                removed += self.remove_entries(old).await?;
            }
        }
    }

    /// Audits the hash chain of the whole journal. `noted` is the chain head of an earlier audit. Takes time in
    /// proportion to the journal's size.
    pub async fn audit(self, noted: Option<audit::ChainHead>) -> Result<audit::Audit, HubError> {
        self.hub.read(move |db| audit::verify(db, noted)).await
    }

    /// Returns a page of the journal after a cursor with the place of each entry in the chain, damaged entries
    /// included.
    pub async fn audit_entries(self, after: i64, limit: usize) -> Result<Vec<audit::AuditEntry>, HubError> {
        self.hub.read(move |db| audit::entries(db, after, limit)).await
    }

    /// Repairs a journal row whose digest or native id is damaged; false if another field is. `likely` is the
    /// native id that its door would use.
    pub async fn repair_damaged(self, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
        self.hub.write(move |tx| repair::repair(tx, seq, likely)).await
    }

    /// Restores a message whose row is damaged, if the content of `draft` matches its checksum.
    pub async fn restore_damaged(self, draft: Draft) -> Result<bool, HubError> {
        let prepared = Prepared::new(draft, usize::MAX, usize::MAX)?;
        self.hub.write(move |tx| submit::restore(tx, prepared)).await
    }
}
