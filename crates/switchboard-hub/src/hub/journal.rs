//! Access to the journal of accepted messages: reads, search, retention, audit and repair.

use jiff::Timestamp;
use switchboard_core::{MessageId, Name, NativeId, Receipt};

use super::Hub;
use crate::error::HubError;
use crate::journal::reads::{self, Page};
use crate::journal::search;
use crate::journal::submit::{self, Draft, Prepared};
use crate::journal::{audit, maintenance, repair};
use crate::store::rows::Stored;

/// Access to the journal: reads, searches, prunes, audits and repairs it.
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

    /// Returns the newest messages of one swarm, oldest first. `scope` is the prefix of the swarm's native ids.
    pub async fn newest_of_swarm(
        self,
        scope: String,
        realm: Name,
        count: usize,
    ) -> Result<Page<Stored>, HubError> {
        self.hub.read(move |db| reads::newest_of_swarm(db, &scope, &realm, count)).await
    }

    /// Returns the first journal number after all messages that retention has removed.
    ///
    /// Returns 0 if retention has removed none.
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

    /// Finds the newest messages before number `before` that contain all terms.
    pub async fn search(
        self,
        words: &str,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<Stored>, HubError> {
        self.search_with(words, before, limit, |_| ()).await
    }

    /// Searches like [`search`](Self::search), and reports progress: the number of messages that are still to be
    /// indexed.
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
        // A search after each step would cost more than the indexing, so the number of steps doubles.
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
                    // Messages that are already indexed can still be found.
                    Err(error) if error.is_disk() => return Ok(page),
                    caught_up => caught_up?,
                };
            }
            steps *= 2;
        }
    }

    /// Indexes a batch of messages that the search index does not cover yet.
    ///
    /// Does so only if this process has changed messages and enough of them are missing to justify a transaction.
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

    /// Returns the next `most` messages after a number, as candidates for retention.
    pub async fn retention_candidates(
        self,
        after: i64,
        most: usize,
    ) -> Result<Vec<maintenance::RetentionCandidate>, HubError> {
        self.hub.read(move |db| maintenance::retention_candidates(db, after, most)).await
    }

    /// Removes messages that no recipient still needs; returns how many were removed.
    pub async fn remove_entries(self, entries: Vec<i64>) -> Result<usize, HubError> {
        self.hub.write(move |tx| maintenance::prune(tx, entries)).await
    }

    /// Removes all messages accepted before `before` that no recipient still needs; returns how many were removed.
    pub async fn prune(self, before: Timestamp) -> Result<usize, HubError> {
        /// Maximum number of messages that one transaction removes, so that senders do not wait long.
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

    /// Audits the hash chain of the whole journal. Takes time in proportion to its size.
    ///
    /// `noted` is the chain head of an earlier audit.
    pub async fn audit(self, noted: Option<audit::ChainHead>) -> Result<audit::Audit, HubError> {
        self.hub.read(move |db| audit::verify(db, noted)).await
    }

    /// Returns a page of the journal after a cursor, for an audit.
    ///
    /// Each entry is returned with its place in the hash chain. Damaged entries are included.
    pub async fn audit_entries(self, after: i64, limit: usize) -> Result<Vec<audit::AuditEntry>, HubError> {
        self.hub.read(move |db| audit::entries(db, after, limit)).await
    }

    /// Repairs a journal row whose digest or native id is damaged.
    ///
    /// Returns false if another field is damaged. `likely` is the native id that the message's door would use.
    pub async fn repair_damaged(self, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
        self.hub.write(move |tx| repair::repair(tx, seq, likely)).await
    }

    /// Restores a message whose row is damaged, if the content of `draft` matches the row's checksum.
    pub async fn restore_damaged(self, draft: Draft) -> Result<bool, HubError> {
        let prepared = Prepared::new(draft, usize::MAX, usize::MAX)?;
        self.hub.write(move |tx| submit::restore(tx, prepared)).await
    }
}
