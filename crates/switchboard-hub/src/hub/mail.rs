//! Reading mail and history, and what is done to mail after it was delivered.

use std::collections::HashSet;

use jiff::Timestamp;
use rusqlite::Connection;
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId, Name, NativeId, Receipt};

use super::Hub;
use crate::error::HubError;
use crate::extent::Extent;
use crate::lost::{self, MissingDeliveries};
use crate::reads::{self, ExpectedFile, MailboxMessage, MailboxQuery, Page, Part};
use crate::store::rows::Stored;
use crate::store::search;
use crate::store::writer::Work;
use crate::submit::{self, Draft, Prepared};
use crate::{audit, directory, maintenance, mend, outbox};

impl Hub {
    /// The message of this id.
    pub async fn message(&self, id: MessageId) -> Result<Option<Stored>, HubError> {
        if let Some(found) = self.glance(|db| reads::message(db, id)) {
            return Ok(found);
        }
        self.read(move |db| reads::message(db, id)).await
    }

    /// A message with what its sender may be told.
    pub async fn receipt(&self, id: MessageId) -> Result<Option<(Stored, Receipt)>, HubError> {
        self.read(move |db| reads::receipt(db, id)).await
    }

    /// The messages that a protocol (or any, for `None`) calls by this id: scope and message, newest first.
    pub async fn find_by_native(
        &self,
        door: Option<Door>,
        id: &str,
    ) -> Result<Vec<(String, MessageId)>, HubError> {
        let id = id.to_owned();
        self.read(move |db| reads::find_by_native(db, door, &id)).await
    }

    /// All ids that a protocol uses within a scope.
    pub async fn native_ids(&self, door: Door, scope: &str) -> Result<HashSet<String>, HubError> {
        let scope = scope.to_owned();
        self.read(move |db| reads::native_ids(db, door, &scope)).await
    }

    /// The scopes that a protocol has used ids in.
    pub async fn scopes(&self, door: Door) -> Result<Vec<String>, HubError> {
        self.read(move |db| reads::scopes(db, door)).await
    }

    /// What a message is called within a scope of a protocol it came in or went out by.
    pub async fn native_id_in(
        &self,
        door: Door,
        scope: &str,
        id: MessageId,
    ) -> Result<Option<String>, HubError> {
        let scope = scope.to_owned();
        self.read(move |db| reads::native_id_in(db, door, &scope, id)).await
    }

    /// The messages that a door took in, before a moment, and that have no name in its protocol yet.
    pub async fn without_native_id(&self, door: Door, before: Timestamp) -> Result<Vec<MessageId>, HubError> {
        self.read(move |db| reads::without_native_id(db, door, before)).await
    }

    /// Notes what a protocol that a message went out by calls it, so that answers to that id find it. False
    /// where the id is in use, be it for this message.
    ///
    /// Does not wait for the disk: a power failure may take it, and what the door wrote tells it again.
    pub async fn bind_native_id(&self, id: MessageId, native: NativeId) -> Result<bool, HubError> {
        let naming = self.inner.writer.queue_repeatable(move |tx| submit::bind_native_id(tx, id, &native));
        let answer = naming.await?.result().await;
        self.note_damage(&answer);
        answer
    }

    /// A page of an agent's mailbox.
    pub async fn mailbox(&self, query: MailboxQuery) -> Result<Page<MailboxMessage>, HubError> {
        let now = self.now();
        self.read(move |db| {
            let agent = directory::canonical(db, &query.agent)?;
            reads::mailbox(db, &MailboxQuery { agent, ..query }, now)
        })
        .await
    }

    /// How many messages wait for an agent; counting stops at `most`.
    pub async fn unread(&self, agent: AgentId, most: usize) -> Result<usize, HubError> {
        self.count(agent, Part::Waiting, most).await
    }

    /// How many messages an agent has in a part of its mailbox; counting stops at `most`.
    pub async fn count(&self, agent: AgentId, part: Part, most: usize) -> Result<usize, HubError> {
        /// More than that are not counted at a glance.
        const FEW: usize = 100;
        let now = self.now();
        let count =
            move |db: &Connection| reads::count(db, &directory::canonical(db, &agent)?, part, most, now);
        if most <= FEW
            && let Some(count) = self.glance(&count)
        {
            return Ok(count);
        }
        self.read(count).await
    }

    /// The place in the journal of the newest message that waits for an agent.
    pub async fn newest_waiting(&self, agent: AgentId) -> Result<Option<i64>, HubError> {
        self.read(move |db| reads::newest_waiting(db, &directory::canonical(db, &agent)?)).await
    }

    /// Everything that must have a file in an agent's mailbox folder.
    pub async fn expected_files(&self, agent: AgentId) -> Result<Vec<ExpectedFile>, HubError> {
        Ok(self
            .expected_files_after(agent, 0, usize::MAX)
            .await?
            .into_iter()
            .map(|(_, waiting)| waiting)
            .collect())
    }

    /// The same after a number of the journal, at most `most` of them and in their order, each with its number.
    pub async fn expected_files_after(
        &self,
        agent: AgentId,
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, ExpectedFile)>, HubError> {
        self.read(move |db| reads::expected_files_after(db, &directory::canonical(db, &agent)?, after, most))
            .await
    }

    /// What is on its way to an agent's mailbox folder.
    pub async fn pending_files(&self, agent: AgentId) -> Result<Vec<ExpectedFile>, HubError> {
        self.read(move |db| reads::pending_files(db, &directory::canonical(db, &agent)?)).await
    }

    /// The first number of the journal after everything that retention has removed; 0 where it has removed nothing.
    pub async fn oldest_retained(&self) -> Result<i64, HubError> {
        self.read(reads::oldest_retained).await
    }

    /// A page of the journal after a cursor, in order of acceptance.
    pub async fn journal(&self, after: i64, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::journal(db, after, limit)).await
    }

    /// The last messages of the journal, oldest first.
    pub async fn newest(&self, count: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::newest(db, count)).await
    }

    /// The last messages of one swarm, oldest first. `scope` is what its native ids begin with.
    pub async fn newest_of_swarm(
        &self,
        scope: String,
        realm: Name,
        count: usize,
    ) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::newest_of_swarm(db, &scope, &realm, count)).await
    }

    /// The conversation a message belongs to.
    pub async fn thread(&self, root: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::thread(db, root, limit)).await
    }

    /// The answers to a message.
    pub async fn replies(&self, id: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::replies(db, id, limit)).await
    }

    /// The newest messages that hold all of the words, older than `before`.
    pub async fn search(
        &self,
        words: &str,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<Stored>, HubError> {
        self.search_with(words, before, limit, |_| ()).await
    }

    /// [`search`](Self::search), with a callback for the number of messages that are still to be indexed.
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
        // Searching again after each step would cost more than indexing: the steps double in between.
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
                    // What is in the index already can be found all the same.
                    Err(error) if error.is_disk() => return Ok(page),
                    caught_up => caught_up?,
                };
            }
            steps *= 2;
        }
    }

    /// Indexes some of what the search does not cover yet, where this process has added to it and it is worth a
    /// transaction.
    pub(crate) async fn index_portion(&self) {
        if !self.has_changed_mail() {
            return;
        }
        let due = match self.glance(search::Coverage::read) {
            Some(coverage) => Ok(coverage),
            None => self.read(search::Coverage::read).await,
        };
        if due.is_ok_and(search::Coverage::is_due) {
            self.inner.writer.post(|tx| search::catch_up(tx, search::PORTION).map(drop));
        }
    }

    /// Notes that an agent was shown these messages; returns those for which that is new.
    pub async fn mark_seen(&self, agent: AgentId, ids: Vec<MessageId>) -> Result<Vec<Delivery>, HubError> {
        self.mark_seen_if(agent, ids, || true).await
    }

    /// [`mark_seen`](Self::mark_seen), unless the reader is gone by the time of the transaction.
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
            maintenance::advance(tx, &agent, &ids, DeliveryState::Seen, None)
        })
        .await
    }

    /// Notes that an agent is done with a message; nothing is returned where that is old news.
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
            Ok(maintenance::advance(tx, &agent, &[id], DeliveryState::Acknowledged, note)?.pop())
        })
        .await
    }

    /// Ends the waiting messages of one kind from one sender to one recipient that came before
    /// `newer`; returns them.
    pub async fn supersede(&self, newer: MessageId) -> Result<Vec<Delivery>, HubError> {
        self.write(move |tx| maintenance::supersede(tx, newer)).await
    }

    /// The mailbox deliveries that expired and whose files are still to be archived, at most `most`.
    pub async fn expired_unarchived(&self, most: usize) -> Result<Vec<(AgentId, MessageId)>, HubError> {
        self.read(move |db| outbox::expired_unarchived(db, most)).await
    }

    /// Notes that the file of an expired delivery is archived.
    pub async fn mark_archived(&self, agent: &AgentId, id: MessageId) -> Result<(), HubError> {
        let key = outbox::unfiled_key(agent, id);
        self.put_note(Door::Workspace, outbox::UNFILED, key, None).await
    }

    /// Ends deliveries whose message lost its use; returns them.
    pub async fn expire_due(&self) -> Result<Vec<Delivery>, HubError> {
        self.write(|tx| outbox::expire_due(tx, usize::MAX)).await
    }

    /// Returns once no delivery of this message waits for a door that is open in this process.
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

    /// The place in the journal of the first message that a peer of a swarm has not got yet and still may.
    pub async fn first_unsent(&self, peer: AgentId) -> Result<Option<i64>, HubError> {
        if let Some(first) = self.glance(|db| reads::first_unsent(db, &peer)) {
            return Ok(first);
        }
        self.read(move |db| reads::first_unsent(db, &peer)).await
    }

    /// Makes the first of what could not be delivered to a peer due at once, in its order: the peer can be reached again.
    /// Nothing where the very first is on its way: whoever has it hurries the others when it is there.
    pub async fn retry_peer_now(&self, peer: AgentId) -> Result<(), HubError> {
        // Mostly nothing waits, and to look costs less than to write.
        let now = self.now();
        if self.glance(|db| reads::first_waits(db, &peer, now)) == Some(false) {
            return Ok(());
        }
        self.write(move |tx| outbox::retry_peer_now(tx, &peer)).await
    }

    /// The same for the very first of each peer, for a door that begins: who was to hurry it may be gone.
    pub async fn retry_first_deliveries(&self) -> Result<(), HubError> {
        self.write(outbox::retry_first_deliveries).await
    }

    /// What a door noted under a topic.
    pub async fn notes(&self, door: Door, topic: &'static str) -> Result<Vec<(String, String)>, HubError> {
        self.read(move |db| maintenance::notes(db, door, topic)).await
    }

    /// Notes something for the next run; `None` forgets it.
    pub async fn put_note(
        &self,
        door: Door,
        topic: &'static str,
        key: String,
        value: Option<String>,
    ) -> Result<(), HubError> {
        self.write(move |tx| maintenance::put_note(tx, door, topic, &key, value.as_deref())).await
    }

    /// The next `most` messages of the journal after a number, for retention.
    pub async fn retention_candidates(
        &self,
        after: i64,
        most: usize,
    ) -> Result<Vec<maintenance::RetentionCandidate>, HubError> {
        self.read(move |db| maintenance::retention_candidates(db, after, most)).await
    }

    /// Removes these messages from the journal, except for those that a recipient is not done with; returns how many.
    pub async fn remove_entries(&self, entries: Vec<i64>) -> Result<usize, HubError> {
        self.write(move |tx| maintenance::prune(tx, entries)).await
    }

    /// Notes something that may be lost in a power failure, because a process that misses it finds it out again. Does not wait
    /// for the disk.
    pub async fn put_note_unsynced(
        &self,
        door: Door,
        topic: &'static str,
        key: String,
        value: Option<String>,
    ) -> Result<(), HubError> {
        let note = move |tx: &mut Work<'_>| maintenance::put_note(tx, door, topic, &key, value.as_deref());
        let answer = self.inner.writer.queue_repeatable(note).await?.result().await;
        self.note_damage(&answer);
        answer
    }

    /// Removes from the journal all messages accepted before `before` that everybody is done with; returns how many.
    pub async fn prune(&self, before: Timestamp) -> Result<usize, HubError> {
        /// Messages that one transaction removes, so that senders are not kept waiting.
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

    /// Gives free pages of the database back to the file system, a bounded number of them; says whether more are left.
    pub async fn shrink(&self) -> Result<bool, HubError> {
        /// Pages that one transaction moves: 2 MiB, some 10 ms.
        const STEP: i64 = 512;
        if !self.read(maintenance::has_free_pages).await? {
            return Ok(false);
        }
        self.write(|tx| maintenance::shrink(tx, STEP)).await
    }

    /// Looks the whole database over. Takes time in proportion to its size.
    pub async fn health(&self) -> Result<maintenance::Health, HubError> {
        self.health_of(Extent::Everything).await
    }

    /// Looks at a part of the journal, and for all of it at the database as a whole.
    pub async fn health_of(&self, extent: Extent) -> Result<maintenance::Health, HubError> {
        self.read(move |db| maintenance::health(db, extent.after(db)?)).await
    }

    /// Whether an examination of this extent covers the whole journal.
    pub async fn is_covered_by(&self, extent: Extent) -> Result<bool, HubError> {
        self.read(move |db| Ok(extent.after(db)? == 0)).await
    }

    /// The messages in a part of the journal that have lost deliveries.
    pub async fn missing_deliveries(&self, extent: Extent) -> Result<Vec<MissingDeliveries>, HubError> {
        let directory = self.directory().await?;
        self.read(move |db| lost::find(db, &directory, extent.after(db)?)).await
    }

    /// Repairs a row of the journal whose digest or native id is damaged; false where something else is. `likely` is
    /// what its door would call the message.
    pub async fn repair_damaged(&self, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
        self.write(move |tx| mend::mend(tx, seq, likely)).await
    }

    /// Makes the deliveries of a message anew that are gone; says how many. Those in `had` have got as far as is said there,
    /// and the others begin again.
    pub async fn restore_deliveries(
        &self,
        id: MessageId,
        had: Vec<(AgentId, DeliveryState)>,
    ) -> Result<usize, HubError> {
        self.write(move |tx| lost::restore(tx.db, &tx.directory.value, id, &had)).await
    }

    /// Goes through the whole journal and says whether every entry is as it was written. `noted` is the end of it as
    /// it was noted before. Takes time in proportion to the journal's size.
    pub async fn audit(&self, noted: Option<audit::ChainHead>) -> Result<audit::Audit, HubError> {
        self.read(move |db| audit::verify(db, noted)).await
    }

    /// A page of the journal after a cursor, each entry with its place in the chain; also those that are damaged.
    pub async fn audit_entries(&self, after: i64, limit: usize) -> Result<Vec<audit::AuditEntry>, HubError> {
        self.read(move |db| audit::entries(db, after, limit)).await
    }

    /// Whether the database is new, so that doors should read back what their files hold.
    pub async fn needs_rebuild(&self) -> Result<bool, HubError> {
        self.read(|db| maintenance::rebuilt(db).map(|rebuilt| !rebuilt)).await
    }

    /// Notes that the doors have read back what their files hold.
    pub async fn mark_rebuilt(&self) -> Result<(), HubError> {
        self.write(maintenance::set_rebuilt).await?;
        self.inner.store.end_rebuild();
        Ok(())
    }

    /// Puts a message back whose row is damaged, provided `draft` has the content its checksum tells of.
    pub async fn restore_damaged(&self, draft: Draft) -> Result<bool, HubError> {
        let prepared = Prepared::new(draft, usize::MAX, usize::MAX)?;
        self.write(move |tx| submit::restore(tx, prepared)).await
    }
}
