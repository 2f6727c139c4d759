//! Publishes the journal's messages for other hubs, from a cursor.
//!
//! Each message is in the stream once. Within the deduplication window, the server recognises a repeated id. Beyond the
//! window, the link reads which messages after the cursor are already in the stream. The cursor advances only over
//! acknowledged messages.
//!
//! A channel post to an agent of another hub is published twice: to the channel, and to that hub, which may receive the
//! message without receiving the channel. That hub's journal deduplicates the two copies by id.

use std::collections::HashSet;
use std::convert::Infallible;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::DeliverPolicy;
use jiff::Timestamp;
use switchboard_core::{Address, Delivery, DeliveryState, GroupId, Message, MessageId, Name, Route};
use switchboard_hub::{HubError, OutgoingRelay, ReceiptStatus, RemoteReceipt};
use tokio::task::JoinHandle;

use crate::cursor::{CURSOR, Cursor};
use crate::error::NatsError;
use crate::interest::wait_until_received;
use crate::publisher::Publisher;
use crate::replay;
use crate::session::Session;
use crate::subject::Subjects;
use crate::translate::{hub_of, peer_readers, posted_in, to_wire};
use crate::wire::{HubMessage, to_bytes_of};

/// Number of journal entries per read.
const PAGE: usize = 512;

/// Number of acknowledged messages after which the cursor is saved.
const SAVE_EVERY: usize = 512;

/// Publishes the journal's messages for other hubs as they arrive, until an error occurs.
pub(crate) async fn run(session: &Session) -> Result<Infallible, NatsError> {
    let mut changes = session.hub.changes();
    let mut publisher = JournalPublisher::start(session).await?;
    loop {
        while publisher.publish_page().await? {}
        publisher.flush().await?;
        changes.next().await;
    }
}

struct JournalPublisher<'l> {
    session: &'l Session,
    cursor: Cursor,
    /// Journal sequence up to which the journal was read.
    read: i64,
    /// Next page, which is prepared while the current one is published.
    prefetched: Option<JoinHandle<Result<Page, HubError>>>,
    /// Ids of messages after the cursor that are already in the stream.
    there: HashSet<String>,
    publisher: Publisher<PendingAck>,
    /// Acknowledged deliveries that are not yet recorded as relayed.
    published: Vec<Delivery>,
    unsaved: usize,
}

/// Page of the journal, ready to be published.
///
/// Publishing a whole page lets the client batch its writes; each single message would wake the client and the server.
struct Page {
    messages: Vec<Outgoing>,
    until: i64,
    more: bool,
}

/// Message that is ready to be published.
struct Outgoing {
    id: MessageId,
    subject: String,
    /// Group to which the message is published.
    group: Option<GroupId>,
    /// Subject of the copy for the recipient's hub. The copy is published before the message.
    copy_to: Option<String>,
    payload: Vec<u8>,
    ack: PendingAck,
}

/// State of a published message, used when the server acknowledges it.
struct PendingAck {
    seq: i64,
    deliveries: Vec<Delivery>,
}

impl<'l> JournalPublisher<'l> {
    async fn start(session: &'l Session) -> Result<Self, NatsError> {
        let mut cursor = Cursor::load(&session.hub).await?;
        if cursor.stream != session.stream_id() {
            cursor = Cursor { sequence: 0, stream: session.stream_id(), ..cursor };
        }
        let there = published_since(session, cursor.sequence).await?;
        let publisher = Publisher::open(session).await?;
        let (prefetched, published) = (None, Vec::new());
        Ok(Self {
            session,
            cursor,
            read: cursor.journal,
            prefetched,
            there,
            publisher,
            published,
            unsaved: 0,
        })
    }

    /// Publishes the next page of the journal; returns true if there is more.
    async fn publish_page(&mut self) -> Result<bool, NatsError> {
        let part = match self.prefetched.take() {
            Some(reading) => reading.await.map_err(|_| HubError::Closed)??,
            None => prepare_page(self.session, self.read).await?,
        };
        if part.more {
            let (session, after) = (self.session.clone(), part.until);
            self.prefetched = Some(tokio::spawn(async move { prepare_page(&session, after).await }));
        }
        for envelope in part.messages {
            self.publish_message(envelope).await?;
        }
        self.read = part.until;
        Ok(part.more)
    }

    async fn publish_message(&mut self, envelope: Outgoing) -> Result<(), NatsError> {
        let Outgoing { id, subject, group, copy_to, payload, ack } = envelope;
        let size = payload.len();
        if let Some(group) = group {
            wait_until_received(self.session, &group).await?;
        }
        if let Some(subject) = copy_to {
            // The acknowledgement of the copy must not move the cursor past the message, which follows.
            let ack = PendingAck { seq: ack.seq - 1, deliveries: Vec::new() };
            self.publish(subject, format!("{id}.copy"), payload.clone(), ack).await?;
        }
        match self.publish(subject, id.to_string(), payload, ack).await? {
            Some(ack) => self.refuse(id, size, &ack.deliveries).await,
            None => Ok(()),
        }
    }

    /// Publishes a message unless the stream already has it.
    ///
    /// If the message is too large, returns its state.
    async fn publish(
        &mut self,
        subject: String,
        id: String,
        payload: Vec<u8>,
        ack: PendingAck,
    ) -> Result<Option<PendingAck>, NatsError> {
        if self.there.remove(&id) {
            self.publisher.push_acked(ack);
            return Ok(None);
        }
        while self.publisher.is_full() {
            self.process_ack().await?;
        }
        self.publisher.send(subject, id, payload, ack).await
    }

    /// Refuses the deliveries of one message that exceeds the server's maximum payload.
    async fn refuse(&self, id: MessageId, size: usize, deliveries: &[Delivery]) -> Result<(), NatsError> {
        let limit = self.session.client.server_info().max_payload;
        let reason = format!("it has {size} bytes, more than the {limit} that NATS allows (max_payload)");
        tracing::warn!(message = %id, reason, "not sent to other hubs");
        let receipt = |delivery: &Delivery| RemoteReceipt {
            id,
            agent: delivery.agent.clone(),
            status: ReceiptStatus::Refused { reason: reason.clone() },
        };
        self.session.hub.relay().apply_receipts(deliveries.iter().map(receipt).collect()).await?;
        Ok(())
    }

    /// Waits until the oldest unacknowledged message is acknowledged; returns false if there is none.
    async fn process_ack(&mut self) -> Result<bool, NatsError> {
        let Some((ack, sequence)) = self.publisher.next_ack().await? else { return Ok(false) };
        // A message that was already in the stream has an older sequence, so the maximum is taken.
        self.cursor.sequence = self.cursor.sequence.max(sequence.unwrap_or_default());
        self.cursor.journal = ack.seq;
        self.published.extend(ack.deliveries);
        self.unsaved += 1;
        if self.unsaved >= SAVE_EVERY {
            self.save().await?;
        }
        Ok(true)
    }

    /// Waits for all acknowledgements and saves the cursor.
    async fn flush(&mut self) -> Result<(), NatsError> {
        while self.process_ack().await? {}
        let skipped = self.read - self.cursor.journal;
        self.cursor.journal = self.read;
        // Messages that stay on this hub need no immediate save, because reading them again is cheap.
        if self.unsaved > 0 || usize::try_from(skipped).is_ok_and(|skipped| skipped >= PAGE) {
            self.save().await?;
        }
        Ok(())
    }

    async fn save(&mut self) -> Result<(), NatsError> {
        self.unsaved = 0;
        let published = std::mem::take(&mut self.published);
        self.session.hub.relay().mark_relayed(CURSOR, self.cursor.to_string(), published).await?;
        Ok(())
    }
}

/// Reads the next page of the journal and prepares its messages for other hubs.
async fn prepare_page(session: &Session, after: i64) -> Result<Page, HubError> {
    let page = session.hub.relay().outgoing(after, PAGE).await?;
    let (now, directory) = (session.hub.now(), session.hub.directory().await?);
    let ready = |OutgoingRelay { stored, deliveries }: OutgoingRelay| {
        let message = &stored.message;
        let subject = subject(message, &deliveries, &session.subjects, &session.me, now)?;
        let group = group(message);
        let copy_to = copy_to(message, &deliveries, &session.subjects, &session.me);
        let readers = peer_readers(message, &deliveries);
        let deliveries: Vec<Delivery> = deliveries.into_iter().filter(is_elsewhere).collect();
        let wire = HubMessage { heard: readers, ..to_wire(message, &deliveries, &session.me, &directory) };
        let payload = to_bytes_of(&wire, message.body.len());
        Some(Outgoing {
            id: message.id,
            subject,
            group,
            copy_to,
            payload,
            ack: PendingAck { seq: stored.seq, deliveries },
        })
    };
    let messages = page.messages.into_iter().filter_map(ready).collect();
    Ok(Page { messages, until: page.until, more: page.more })
}

/// Returns the subject of a message; `None` if the message has no remote readers or has expired.
fn subject(
    message: &Message,
    deliveries: &[Delivery],
    subjects: &Subjects,
    me: &Name,
    now: Timestamp,
) -> Option<String> {
    if message.expires_at.is_some_and(|at| at <= now) {
        return None;
    }
    // A message that loop protection stopped goes to no hub.
    let is_stopped = !deliveries.is_empty() && deliveries.iter().all(|d| d.state == DeliveryState::Refused);
    match (&message.to, group(message)) {
        (Address::Group(_) | Address::Agent(_), _) if is_stopped => None,
        (_, Some(group)) => subjects.group(me, &group),
        (Address::Agent(_), None) => deliveries.iter().find_map(hub_of).map(|hub| subjects.direct(me, hub)),
        (Address::Group(_) | Address::Node(_), None) => None,
    }
}

/// Returns the group that reads a message: its address, or the channel in which it was posted.
fn group(message: &Message) -> Option<GroupId> {
    match &message.to {
        Address::Group(group) => Some(group.clone()),
        Address::Agent(_) => posted_in(message).map(GroupId::Channel),
        Address::Node(_) => None,
    }
}

/// Returns the subject of the copy of a post for the hub of the post's recipient.
fn copy_to(message: &Message, deliveries: &[Delivery], subjects: &Subjects, me: &Name) -> Option<String> {
    let (Address::Agent(_), Some(_)) = (&message.to, posted_in(message)) else { return None };
    deliveries.iter().find_map(hub_of).map(|hub| subjects.direct(me, hub))
}

fn is_elsewhere(delivery: &Delivery) -> bool {
    matches!(delivery.route, Route::Hub { .. })
}

/// Returns the ids of this hub's messages after a sequence of the stream.
///
/// There are few of them, because the cursor is recent.
async fn published_since(session: &Session, sequence: u64) -> Result<HashSet<String>, NatsError> {
    let mut ids = HashSet::new();
    let info = session.stream.get_info().await.map_err(NatsError::server("describe the stream"))?;
    if info.state.last_sequence <= sequence {
        return Ok(ids);
    }
    for filter_subject in session.subjects.messages_of(&session.me) {
        let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence: sequence + 1 };
        let part = replay::StreamRange { filter_subject, deliver_policy, headers_only: true };
        for (_, message) in replay::read_range(&session.stream, part, session.config.timeout).await? {
            let id = message.headers.as_ref().and_then(|headers| headers.get(NATS_MESSAGE_ID));
            ids.extend(id.map(|id| id.as_str().to_owned()));
        }
    }
    Ok(ids)
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
