//! The way out: the journal, read from a cursor and published.
//!
//! Each message is in the stream once. While a publish may be repeated within minutes, the server recognises its id;
//! for anything older the link looks which of its messages after the cursor the stream already has. The cursor moves
//! only over what the server has acknowledged.
//!
//! A post in a channel to an agent of another hub is published twice, for the channel and for that hub, which may read the
//! message and not the channel. Its journal knows the second by its id.

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

/// How many numbers of the journal are looked at in one go.
const PAGE: usize = 512;

/// After how many acknowledged messages the cursor is written down.
const SAVE_EVERY: usize = 512;

/// Publishes what the journal has for other hubs, as it comes, until something fails.
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
    /// The part of the journal up to here has been looked at.
    read: i64,
    /// The next part, being made ready while this one is published.
    prefetched: Option<JoinHandle<Result<Page, HubError>>>,
    /// Messages after the cursor that the stream already has, by the ids that they were published under.
    there: HashSet<String>,
    publisher: Publisher<PendingAck>,
    /// Deliveries that are on their way and not noted to be.
    published: Vec<Delivery>,
    unsaved: usize,
}

/// A part of the journal, ready to be published. In one go, so that the client writes many messages at once: one at a
/// time, as they are read, each would wake it, and the server.
struct Page {
    messages: Vec<Outgoing>,
    until: i64,
    more: bool,
}

/// A message that is ready to be published.
struct Outgoing {
    id: MessageId,
    subject: String,
    /// The group that it is published to.
    group: Option<GroupId>,
    /// Where it is published before that, for the one hub that has its recipient.
    copy_to: Option<String>,
    payload: Vec<u8>,
    cargo: PendingAck,
}

/// What has to be known of a message when the server has it.
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

    /// Publishes the next part of the journal; says whether there is more.
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
            self.pass(envelope).await?;
        }
        self.read = part.until;
        Ok(part.more)
    }

    async fn pass(&mut self, envelope: Outgoing) -> Result<(), NatsError> {
        let Outgoing { id, subject, group, copy_to, payload, cargo } = envelope;
        let size = payload.len();
        if let Some(group) = group {
            wait_until_received(self.session, &group).await?;
        }
        if let Some(subject) = copy_to {
            // The message itself is still to come, so the cursor stays before it.
            let cargo = PendingAck { seq: cargo.seq - 1, deliveries: Vec::new() };
            self.publish(subject, format!("{id}.copy"), payload.clone(), cargo).await?;
        }
        match self.publish(subject, id.to_string(), payload, cargo).await? {
            Some(cargo) => self.refuse(id, size, &cargo.deliveries).await,
            None => Ok(()),
        }
    }

    /// Publishes under an id, unless the stream has it. Returns the cargo of a message that is too large.
    async fn publish(
        &mut self,
        subject: String,
        id: String,
        payload: Vec<u8>,
        cargo: PendingAck,
    ) -> Result<Option<PendingAck>, NatsError> {
        if self.there.remove(&id) {
            self.publisher.push_acked(cargo);
            return Ok(None);
        }
        while self.publisher.is_full() {
            self.process_ack().await?;
        }
        self.publisher.send(subject, id, payload, cargo).await
    }

    /// A message that the server is too small for stops at itself.
    async fn refuse(&self, id: MessageId, size: usize, deliveries: &[Delivery]) -> Result<(), NatsError> {
        let limit = self.session.client.server_info().max_payload;
        let reason = format!("it has {size} bytes and NATS takes {limit} at once (max_payload)");
        tracing::warn!(message = %id, reason, "not passed on to other hubs");
        let receipt = |delivery: &Delivery| RemoteReceipt {
            id,
            agent: delivery.agent.clone(),
            status: ReceiptStatus::Refused { reason: reason.clone() },
        };
        self.session.hub.apply_receipts(deliveries.iter().map(receipt).collect()).await?;
        Ok(())
    }

    /// Waits until the server has the first of those on their way; says whether there was one.
    async fn process_ack(&mut self) -> Result<bool, NatsError> {
        let Some((cargo, sequence)) = self.publisher.next_ack().await? else { return Ok(false) };
        // One that it had before has the sequence of then.
        self.cursor.sequence = self.cursor.sequence.max(sequence.unwrap_or_default());
        self.cursor.journal = cargo.seq;
        self.published.extend(cargo.deliveries);
        self.unsaved += 1;
        if self.unsaved >= SAVE_EVERY {
            self.save().await?;
        }
        Ok(true)
    }

    /// Waits until the server has everything, and writes that down.
    async fn flush(&mut self) -> Result<(), NatsError> {
        while self.process_ack().await? {}
        let skipped = self.read - self.cursor.journal;
        self.cursor.journal = self.read;
        // What is not for others need not be written down at once: looking at it again costs little.
        if self.unsaved > 0 || usize::try_from(skipped).is_ok_and(|skipped| skipped >= PAGE) {
            self.save().await?;
        }
        Ok(())
    }

    async fn save(&mut self) -> Result<(), NatsError> {
        self.unsaved = 0;
        let published = std::mem::take(&mut self.published);
        self.session.hub.mark_relayed(CURSOR, self.cursor.to_string(), published).await?;
        Ok(())
    }
}

/// Reads the next part of the journal and makes what concerns other hubs ready.
async fn prepare_page(session: &Session, after: i64) -> Result<Page, HubError> {
    let page = session.hub.outgoing(after, PAGE).await?;
    let (now, directory) = (session.hub.now(), session.hub.directory().await?);
    let ready = |OutgoingRelay { stored, deliveries }: OutgoingRelay| {
        let message = &stored.message;
        let subject = subject(message, &deliveries, &session.subjects, &session.me, now)?;
        let group = group(message);
        let copy_to = copy_to(message, &deliveries, &session.subjects, &session.me);
        let heard = peer_readers(message, &deliveries);
        let deliveries: Vec<Delivery> = deliveries.into_iter().filter(is_elsewhere).collect();
        let wire = HubMessage { heard, ..to_wire(message, &deliveries, &session.me, &directory) };
        let payload = to_bytes_of(&wire, message.body.len());
        Some(Outgoing {
            id: message.id,
            subject,
            group,
            copy_to,
            payload,
            cargo: PendingAck { seq: stored.seq, deliveries },
        })
    };
    let messages = page.messages.into_iter().filter_map(ready).collect();
    Ok(Page { messages, until: page.until, more: page.more })
}

/// Where a message is to be published; nothing where it is not for others, or no longer of use to them.
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
    // A message that a rule against storms stopped goes nowhere, and so not to other hubs either.
    let is_stopped = !deliveries.is_empty() && deliveries.iter().all(|d| d.state == DeliveryState::Refused);
    match (&message.to, group(message)) {
        (Address::Group(_) | Address::Agent(_), _) if is_stopped => None,
        (_, Some(group)) => subjects.group(me, &group),
        (Address::Agent(_), None) => deliveries.iter().find_map(hub_of).map(|hub| subjects.direct(me, hub)),
        (Address::Group(_) | Address::Node(_), None) => None,
    }
}

/// The group that reads a message: its address, or the channel that it was posted in.
fn group(message: &Message) -> Option<GroupId> {
    match &message.to {
        Address::Group(group) => Some(group.clone()),
        Address::Agent(_) => posted_in(message).map(GroupId::Channel),
        Address::Node(_) => None,
    }
}

/// Where a post to an agent of another hub is published beside its channel.
fn copy_to(message: &Message, deliveries: &[Delivery], subjects: &Subjects, me: &Name) -> Option<String> {
    let (Address::Agent(_), Some(_)) = (&message.to, posted_in(message)) else { return None };
    deliveries.iter().find_map(hub_of).map(|hub| subjects.direct(me, hub))
}

fn is_elsewhere(delivery: &Delivery) -> bool {
    matches!(delivery.route, Route::Hub { .. })
}

/// The ids of this hub's messages that the stream has after a sequence. Few: the cursor is never far behind.
async fn published_since(session: &Session, sequence: u64) -> Result<HashSet<String>, NatsError> {
    let mut there = HashSet::new();
    let info = session.stream.get_info().await.map_err(NatsError::server("describe the stream"))?;
    if info.state.last_sequence <= sequence {
        return Ok(there);
    }
    for filter_subject in session.subjects.messages_of(&session.me) {
        let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence: sequence + 1 };
        let part = replay::StreamRange { filter_subject, deliver_policy, headers_only: true };
        for (_, message) in replay::read_range(&session.stream, part, session.config.timeout).await? {
            let id = message.headers.as_ref().and_then(|headers| headers.get(NATS_MESSAGE_ID));
            there.extend(id.map(|id| id.as_str().to_owned()));
        }
    }
    Ok(there)
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
