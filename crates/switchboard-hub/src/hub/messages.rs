//! Reads of mailboxes and history, and changes to messages after their delivery.

use std::collections::HashSet;

use jiff::Timestamp;
use rusqlite::Connection;
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId, Name, NativeId, Receipt};

use super::Hub;
use crate::delivery::missing_deliveries::{self, MissingDeliveries};
use crate::delivery::outbox;
use crate::directory;
use crate::error::HubError;
use crate::journal::extent::Extent;
use crate::journal::reads::{self, ExpectedFile, MailboxMessage, MailboxQuery, Page, Part};
use crate::journal::search;
use crate::journal::submit::{self, Draft, Prepared};
use crate::journal::{audit, maintenance, repair};
use crate::store::rows::Stored;
use crate::store::writer::Transaction;

impl Hub {
    /// Returns a message by id.
    pub async fn message(&self, id: MessageId) -> Result<Option<Stored>, HubError> {
        if let Some(found) = self.try_read(|db| reads::message(db, id)) {
            return Ok(found);
        }
        self.read(move |db| reads::message(db, id)).await
    }

    /// Returns a message with its receipt.
    pub async fn receipt(&self, id: MessageId) -> Result<Option<(Stored, Receipt)>, HubError> {
        self.read(move |db| reads::receipt(db, id)).await
    }

    /// Finds messages by native id, in one protocol or (`None`) in any: scope and message, newest first.
    pub async fn find_by_native(
        &self,
        door: Option<Door>,
        id: &str,
    ) -> Result<Vec<(String, MessageId)>, HubError> {
        let id = id.to_owned();
        self.read(move |db| reads::find_by_native(db, door, &id)).await
    }

    /// Returns all native ids of a protocol within a scope.
    pub async fn native_ids(&self, door: Door, scope: &str) -> Result<HashSet<String>, HubError> {
        let scope = scope.to_owned();
        self.read(move |db| reads::native_ids(db, door, &scope)).await
    }

    /// Returns the scopes in which a protocol has used native ids.
    pub async fn scopes(&self, door: Door) -> Result<Vec<String>, HubError> {
        self.read(move |db| reads::scopes(db, door)).await
    }

    /// Returns the native id of a message within a scope of a protocol that it arrived or left by.
    pub async fn native_id_in(
        &self,
        door: Door,
        scope: &str,
        id: MessageId,
    ) -> Result<Option<String>, HubError> {
        let scope = scope.to_owned();
        self.read(move |db| reads::native_id_in(db, door, &scope, id)).await
    }

    /// Lists messages that a door accepted before a moment and that have no native id in its protocol yet.
    pub async fn without_native_id(&self, door: Door, before: Timestamp) -> Result<Vec<MessageId>, HubError> {
        self.read(move |db| reads::without_native_id(db, door, before)).await
    }

    /// Binds a further native id to a message, so that replies to that id find it. False if the id is in use,
    /// be it for this message.
    ///
    /// Does not wait for the disk: after a power failure, the door's own files tell the id again.
    pub async fn bind_native_id(&self, id: MessageId, native: NativeId) -> Result<bool, HubError> {
        let naming = self.inner.writer.queue_repeatable(move |tx| submit::bind_native_id(tx, id, &native));
        let answer = naming.await?.result().await;
        self.note_damage(&answer);
        answer
    }

    /// Returns a page of an agent's mailbox.
    pub async fn mailbox(&self, query: MailboxQuery) -> Result<Page<MailboxMessage>, HubError> {
        let now = self.now();
        self.read(move |db| {
            let agent = directory::canonical(db, &query.agent)?;
            reads::mailbox(db, &MailboxQuery { agent, ..query }, now)
        })
        .await
    }

    /// Counts the messages that wait for an agent, up to `most`.
    pub async fn unread(&self, agent: AgentId, most: usize) -> Result<usize, HubError> {
        self.count(agent, Part::Waiting, most).await
    }

    /// Counts the messages in a part of an agent's mailbox, up to `most`.
    pub async fn count(&self, agent: AgentId, part: Part, most: usize) -> Result<usize, HubError> {
        /// Larger counts take too long to run inline.
        const FEW: usize = 100;
        let now = self.now();
        let count =
            move |db: &Connection| reads::count(db, &directory::canonical(db, &agent)?, part, most, now);
        if most <= FEW
            && let Some(count) = self.try_read(&count)
        {
            return Ok(count);
        }
        self.read(count).await
    }

    /// Returns the journal number of the newest message that waits for an agent.
    pub async fn newest_waiting(&self, agent: AgentId) -> Result<Option<i64>, HubError> {
        self.read(move |db| reads::newest_waiting(db, &directory::canonical(db, &agent)?)).await
    }

    /// Lists the messages that must have a file in an agent's mailbox folder.
    pub async fn expected_files(&self, agent: AgentId) -> Result<Vec<ExpectedFile>, HubError> {
        Ok(self
            .expected_files_after(agent, 0, usize::MAX)
            .await?
            .into_iter()
            .map(|(_, waiting)| waiting)
            .collect())
    }

    /// Lists such messages after a journal number, at most `most`, in order, each with its number.
    pub async fn expected_files_after(
        &self,
        agent: AgentId,
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, ExpectedFile)>, HubError> {
        self.read(move |db| reads::expected_files_after(db, &directory::canonical(db, &agent)?, after, most))
            .await
    }

    /// Lists messages on their way to an agent's mailbox folder: their files may exist already.
    pub async fn pending_files(&self, agent: AgentId) -> Result<Vec<ExpectedFile>, HubError> {
        self.read(move |db| reads::pending_files(db, &directory::canonical(db, &agent)?)).await
    }

    /// Returns the first journal number after everything that retention has removed; 0 if it has removed
    /// nothing.
    pub async fn oldest_retained(&self) -> Result<i64, HubError> {
        self.read(reads::oldest_retained).await
    }

    /// Returns a page of the journal after a cursor, in order of acceptance.
    pub async fn journal(&self, after: i64, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::journal(db, after, limit)).await
    }

    /// Returns the newest messages of the journal, oldest first.
    pub async fn newest(&self, count: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::newest(db, count)).await
    }

    /// Returns the newest messages of one swarm, oldest first. `scope` is the prefix of its native ids.
    pub async fn newest_of_swarm(
        &self,
        scope: String,
        realm: Name,
        count: usize,
    ) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::newest_of_swarm(db, &scope, &realm, count)).await
    }

    /// Returns the conversation of a message.
    pub async fn thread(&self, root: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::thread(db, root, limit)).await
    }

    /// Returns the replies to a message.
    pub async fn replies(&self, id: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::replies(db, id, limit)).await
    }

    /// Searches for the newest messages that contain all terms, older than `before`.
    pub async fn search(
        &self,
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
        &self,
        words: &str,
        before: Option<i64>,
        limit: usize,
        progress: impl Fn(u64),
    ) -> Result<Page<Stored>, HubError> {
        let mut coverage = self.read(search::Coverage::read).await?;
        // A search after each step would cost more than indexing, so the steps double.
        let mut steps = 1;
        loop {
            let query = words.to_owned();
            let mut page = self.read(move |db| reads::search(db, &query, before, limit)).await?;
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
                coverage = match self.write(|tx| search::catch_up(tx, search::STEP)).await {
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
    pub(crate) async fn index_portion(&self) {
        if !self.has_changed_mail() {
            return;
        }
        let due = match self.try_read(search::Coverage::read) {
            Some(coverage) => Ok(coverage),
            None => self.read(search::Coverage::read).await,
        };
        if due.is_ok_and(search::Coverage::is_due) {
            self.inner.writer.post(|tx| search::catch_up(tx, search::PORTION).map(drop));
        }
    }

    /// Marks messages as seen by an agent; returns the deliveries that changed.
    pub async fn mark_seen(&self, agent: AgentId, ids: Vec<MessageId>) -> Result<Vec<Delivery>, HubError> {
        self.mark_seen_if(agent, ids, || true).await
    }

    /// Like [`mark_seen`](Self::mark_seen), unless the reader has disconnected by the time of the transaction.
    pub async fn mark_seen_if(
        &self,
        agent: AgentId,
        ids: Vec<MessageId>,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<Vec<Delivery>, HubError> {
        self.note_changed_mail();
        self.write(move |tx| {
            if !is_there() {
                return Ok(Vec::new());
            }
            let agent = tx.directory.value.canonical(&agent);
            maintenance::advance_deliveries(tx, &agent, &ids, DeliveryState::Seen, None)
        })
        .await
    }

    /// Acknowledges a message for an agent; `None` if it was acknowledged before.
    pub async fn acknowledge(
        &self,
        agent: AgentId,
        id: MessageId,
        note: Option<String>,
    ) -> Result<Option<Delivery>, HubError> {
        self.note_changed_mail();
        self.write(move |tx| {
            let agent = tx.directory.value.canonical(&agent);
            let delivery = maintenance::delivery_to(tx.db, id, &agent)?;
            if delivery.is_none() {
                return Err(HubError::NotTheRecipient { id, agent });
            }
            Ok(maintenance::advance_deliveries(tx, &agent, &[id], DeliveryState::Acknowledged, note)?.pop())
        })
        .await
    }

    /// Supersedes earlier waiting messages of the same kind, sender and recipient as `newer`; returns them.
    pub async fn supersede(&self, newer: MessageId) -> Result<Vec<Delivery>, HubError> {
        self.write(move |tx| maintenance::supersede(tx, newer)).await
    }

    /// Lists expired mailbox deliveries whose files are still to be archived, at most `most`.
    pub async fn expired_unarchived(&self, most: usize) -> Result<Vec<(AgentId, MessageId)>, HubError> {
        self.read(move |db| outbox::expired_unarchived(db, most)).await
    }

    /// Records that the file of an expired delivery is archived.
    pub async fn mark_archived(&self, agent: &AgentId, id: MessageId) -> Result<(), HubError> {
        let key = outbox::unarchived_key(agent, id);
        self.put_note(Door::Workspace, outbox::UNARCHIVED, key, None).await
    }

    /// Expires due deliveries; returns them.
    pub async fn expire_due(&self) -> Result<Vec<Delivery>, HubError> {
        self.write(|tx| outbox::expire_due(tx, usize::MAX)).await
    }

    /// Waits until no delivery of a message is pending for a door that is open in this process.
    pub async fn wait_until_settled(&self, id: MessageId) -> Result<Receipt, HubError> {
        let mut changes = self.changes();
        loop {
            let found = self.receipt(id).await?;
            let Some((_, receipt)) = found else {
                return Err(HubError::UnknownMessage { id: id.to_string() });
            };
            let waits = |d: &Delivery| {
                matches!(d.state, DeliveryState::Queued | DeliveryState::InFlight)
                    && self.inner.doors.is_open(d.route.door())
            };
            if !receipt.deliveries.iter().any(waits) {
                return Ok(receipt);
            }
            changes.next().await;
        }
    }

    /// Returns the journal number of the first message that a swarm peer has not received yet and still may.
    pub async fn first_unsent(&self, peer: AgentId) -> Result<Option<i64>, HubError> {
        if let Some(first) = self.try_read(|db| reads::first_unsent(db, &peer)) {
            return Ok(first);
        }
        self.read(move |db| reads::first_unsent(db, &peer)).await
    }

    /// Retries failed deliveries to a peer at once, in order, because the peer is reachable again. Nothing
    /// happens while its first delivery is in flight: the door retries the others when that has arrived.
    pub async fn retry_peer_now(&self, peer: AgentId) -> Result<(), HubError> {
        // Mostly nothing waits, and a read costs less than a write.
        let now = self.now();
        if self.try_read(|db| reads::first_waits(db, &peer, now)) == Some(false) {
            return Ok(());
        }
        self.write(move |tx| outbox::retry_peer_now(tx, &peer)).await
    }

    /// Retries the first failed delivery of each peer, for a door that starts: the process that would have
    /// retried it may be dead.
    pub async fn retry_first_deliveries(&self) -> Result<(), HubError> {
        self.write(outbox::retry_first_deliveries).await
    }

    /// Lists a door's notes under a topic.
    pub async fn notes(&self, door: Door, topic: &'static str) -> Result<Vec<(String, String)>, HubError> {
        self.read(move |db| maintenance::notes(db, door, topic)).await
    }

    /// Writes a note for later runs; `None` deletes it.
    pub async fn put_note(
        &self,
        door: Door,
        topic: &'static str,
        key: String,
        value: Option<String>,
    ) -> Result<(), HubError> {
        self.write(move |tx| maintenance::put_note(tx, door, topic, &key, value.as_deref())).await
    }

    /// Returns the next `most` messages of the journal after a number, for retention.
    pub async fn retention_candidates(
        &self,
        after: i64,
        most: usize,
    ) -> Result<Vec<maintenance::RetentionCandidate>, HubError> {
        self.read(move |db| maintenance::retention_candidates(db, after, most)).await
    }

    /// Removes messages from the journal, except those that a recipient still needs; returns how many.
    pub async fn remove_entries(&self, entries: Vec<i64>) -> Result<usize, HubError> {
        self.write(move |tx| maintenance::prune(tx, entries)).await
    }

    /// Writes a note without waiting for the disk. A power failure may take it; a process that misses it finds
    /// the fact out again.
    pub async fn put_note_unsynced(
        &self,
        door: Door,
        topic: &'static str,
        key: String,
        value: Option<String>,
    ) -> Result<(), HubError> {
        let note =
            move |tx: &mut Transaction<'_>| maintenance::put_note(tx, door, topic, &key, value.as_deref());
        let answer = self.inner.writer.queue_repeatable(note).await?.result().await;
        self.note_damage(&answer);
        answer
    }

    /// Removes all messages accepted before `before` that no recipient still needs; returns how many.
    pub async fn prune(&self, before: Timestamp) -> Result<usize, HubError> {
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

    /// Returns a bounded number of free pages to the file system; true if more are free.
    pub async fn shrink(&self) -> Result<bool, HubError> {
        /// Pages that one transaction moves: 2 MiB, some 10 ms.
        const STEP: i64 = 512;
        if !self.read(maintenance::has_free_pages).await? {
            return Ok(false);
        }
        self.write(|tx| maintenance::shrink(tx, STEP)).await
    }

    /// Checks the whole database. Takes time in proportion to its size.
    pub async fn health(&self) -> Result<maintenance::Health, HubError> {
        self.health_of(Extent::Everything).await
    }

    /// Checks a part of the journal; for all of it, also the database as a whole.
    pub async fn health_of(&self, extent: Extent) -> Result<maintenance::Health, HubError> {
        self.read(move |db| maintenance::health(db, extent.after(db)?)).await
    }

    /// True if an examination of this extent covers the whole journal.
    pub async fn is_covered_by(&self, extent: Extent) -> Result<bool, HubError> {
        self.read(move |db| Ok(extent.after(db)? == 0)).await
    }

    /// Finds the messages in a part of the journal that have lost deliveries.
    pub async fn missing_deliveries(&self, extent: Extent) -> Result<Vec<MissingDeliveries>, HubError> {
        let directory = self.directory().await?;
        self.read(move |db| missing_deliveries::find(db, &directory, extent.after(db)?)).await
    }

    /// Repairs a journal row whose digest or native id is damaged; false if another field is. `likely` is the
    /// native id that its door would use.
    pub async fn repair_damaged(&self, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
        self.write(move |tx| repair::repair(tx, seq, likely)).await
    }

    /// Restores the missing deliveries of a message; returns how many. Those in `had` get the state that is
    /// given there, and the others are queued.
    pub async fn restore_deliveries(
        &self,
        id: MessageId,
        had: Vec<(AgentId, DeliveryState)>,
    ) -> Result<usize, HubError> {
        self.write(move |tx| missing_deliveries::restore(tx.db, &tx.directory.value, id, &had)).await
    }

    /// Audits the hash chain of the whole journal. `noted` is the chain head of an earlier audit. Takes time in
    /// proportion to the journal's size.
    pub async fn audit(&self, noted: Option<audit::ChainHead>) -> Result<audit::Audit, HubError> {
        self.read(move |db| audit::verify(db, noted)).await
    }

    /// Returns a page of the journal after a cursor with the place of each entry in the chain, damaged entries
    /// included.
    pub async fn audit_entries(&self, after: i64, limit: usize) -> Result<Vec<audit::AuditEntry>, HubError> {
        self.read(move |db| audit::entries(db, after, limit)).await
    }

    /// True if the database is new, so that doors should read back what their files hold.
    pub async fn needs_rebuild(&self) -> Result<bool, HubError> {
        self.read(|db| maintenance::rebuilt(db).map(|rebuilt| !rebuilt)).await
    }

    /// Records that the doors have read back what their files hold.
    pub async fn mark_rebuilt(&self) -> Result<(), HubError> {
        self.write(maintenance::set_rebuilt).await?;
        self.inner.store.end_rebuild();
        Ok(())
    }

    /// Restores a message whose row is damaged, if the content of `draft` matches its checksum.
    pub async fn restore_damaged(&self, draft: Draft) -> Result<bool, HubError> {
        let prepared = Prepared::new(draft, usize::MAX, usize::MAX)?;
        self.write(move |tx| submit::restore(tx, prepared)).await
    }
}
