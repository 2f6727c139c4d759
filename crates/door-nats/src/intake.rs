//! Ingests messages of other hubs from the stream into the journal.
//!
//! The hub stores its own cursor, and the consumer starts after it, in stream order and without acknowledgements:
//! redelivery by the server would put old messages after newer ones. The cursor advances once the journal has the
//! messages and the receipts were sent. Messages that are redelivered after a crash are deduplicated by id. An unusable
//! message is skipped with a warning, so a broken or hostile message never blocks the messages after it.

use std::convert::Infallible;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use switchboard_core::{
    Address, AgentId, Delivery, DeliveryState, MessageId, Name, ResolveError, error_chain,
};
use switchboard_hub::{Accepted, HubError, ReceiptStatus, RelayedMessage, RemoteReceipt};
use tokio::sync::watch;

use crate::cursor::Ingested;
use crate::error::NatsError;
use crate::interest::Interest;
use crate::publisher::Publisher;
use crate::session::Session;
use crate::subject::token;
use crate::translate::{filter_for_hub, from_wire};
use crate::wire::{
    DeliveryReceipt, Envelope, EnvelopeKind, Malformed, ReaderReceipt, ReaderState, ReceiptBatch, VERSION,
    parse_entries, to_bytes,
};

/// Maximum number of messages per batch. A batch stays in memory until the journal has it.
const BATCH: usize = 256;

/// Idle heartbeat of the consumer. A server that is silent for twice this time counts as gone.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Poll interval while an interest switch is pending.
const SWITCH: Duration = Duration::from_millis(100);

/// Number of skipped messages after which the cursor is saved even though nothing was ingested.
const SKIPPED: u64 = 512;

/// Agents of this hub, and the reason why a message was refused for them; `None` if it reached them.
type RecipientOutcome = (Vec<Name>, Option<String>);

/// Decoded messages and receipts of a batch.
#[derive(Default)]
struct Batch {
    messages: Vec<RelayedMessage>,
    receipts: Vec<RemoteReceipt>,
}

/// Ingests the stream's messages for this hub until an error occurs.
pub(crate) async fn run(session: &Session) -> Result<Infallible, NatsError> {
    let mut wanted = session.wanted.subscribe();
    wanted.mark_changed();
    let ingested = Ingested::load(&session.hub, session.stream_id()).await?;
    let (read, saved) = (ingested.sequence, ingested.sequence);
    let publisher = Publisher::open(session).await?;
    let mut intake = Intake { session, ingested, read, saved, publisher, wanted, switch: None };
    loop {
        let consumer = session.consumer(&intake.ingested).await?;
        intake.follow(&consumer).await?;
    }
}

struct Intake<'l> {
    session: &'l Session,
    /// The intake cursor as saved, except for skipped messages since the last save.
    ingested: Ingested,
    /// Stream sequence up to which the journal has all messages; their receipts may still be unacknowledged.
    read: u64,
    /// Stream sequence of the last saved cursor.
    saved: u64,
    /// Unacknowledged receipts, each batch of which is followed by the progress that the batch makes.
    publisher: Publisher<Option<Progress>>,
    wanted: watch::Receiver<Interest>,
    switch: Option<InterestSwitch>,
}

/// How far the stream was ingested after a batch.
#[derive(Clone, Copy)]
struct Progress {
    sequence: u64,
    /// True if the batch contained a message or receipt for this hub.
    has_changes: bool,
}

/// Pending change of interest, which waits until everything that the old interest covers is ingested.
struct InterestSwitch {
    interest: Interest,
    /// Last sequence of the stream when the change was made. New groups start after it.
    until: u64,
}

impl Intake<'_> {
    /// Ingests what a consumer delivers until the interest has changed.
    async fn follow(&mut self, consumer: &Consumer<pull::Config>) -> Result<(), NatsError> {
        let action = "deliver messages";
        let reading =
            consumer.stream().max_messages_per_batch(BATCH).heartbeat(HEARTBEAT).expires(HEARTBEAT * 6);
        let mut messages = reading.messages().await.map_err(NatsError::server(action))?.ready_chunks(BATCH);
        let (mut delivered, mut pending) = (0, consumer.cached_info().num_pending);
        loop {
            tokio::select! {
                chunk = messages.next() => {
                    let chunk: Result<Vec<Message>, _> = chunk.ok_or(NatsError::Lost)?.into_iter().collect();
                    let chunk = chunk.map_err(NatsError::server(action))?;
                    for message in &chunk {
                        let info = message.info().map_err(NatsError::server(action))?;
                        delivered += 1;
                        if info.consumer_sequence != delivered {
                            // A message is missing, so the next session restarts at the cursor.
                            return Err(NatsError::Lost);
                        }
                        (pending, self.read) = (info.pending, info.stream_sequence);
                    }
                    self.ingest(&chunk).await?;
                }
                acked = self.publisher.next_ack(), if !self.publisher.is_empty() => self.record_ack(acked?).await?,
                changed = self.wanted.changed(), if self.switch.is_none() => {
                    changed.map_err(|_| NatsError::Lost)?;
                    self.plan_switch().await?;
                }
                () = tokio::time::sleep(SWITCH), if self.switch.is_some() => {}
            }
            let Some(switch) = &self.switch else { continue };
            if self.read >= switch.until || (pending == 0 && is_drained(consumer, delivered).await?) {
                return self.finish_switch().await;
            }
        }
    }

    async fn plan_switch(&mut self) -> Result<(), NatsError> {
        let interest = self.wanted.borrow_and_update().clone();
        if interest != self.ingested.interest {
            let info =
                self.session.stream.get_info().await.map_err(NatsError::server("describe the stream"))?;
            self.switch = Some(InterestSwitch { interest, until: info.state.last_sequence });
        }
        Ok(())
    }

    async fn finish_switch(&mut self) -> Result<(), NatsError> {
        while !self.publisher.is_empty() {
            let acked = self.publisher.next_ack().await?;
            self.record_ack(acked).await?;
        }
        if let Some(InterestSwitch { interest, until }) = self.switch.take() {
            self.read = self.read.max(until);
            let stream = self.ingested.stream;
            self.ingested = Ingested { stream, sequence: self.read, interest };
            self.save().await?;
            self.session.received.send_replace(self.ingested.interest.clone());
        }
        Ok(())
    }

    async fn record_ack(&mut self, acked: Option<(Option<Progress>, Option<u64>)>) -> Result<(), NatsError> {
        let Some((Some(Progress { sequence, has_changes }), _)) = acked else { return Ok(()) };
        self.ingested.sequence = sequence;
        if has_changes || sequence - self.saved >= SKIPPED { self.save().await } else { Ok(()) }
    }

    async fn save(&mut self) -> Result<(), NatsError> {
        self.saved = self.ingested.sequence;
        self.ingested.save(&self.session.hub).await
    }

    async fn ingest(&mut self, chunk: &[Message]) -> Result<(), NatsError> {
        let batch = decode_batch(self.session, &self.ingested.interest, chunk).await?;
        let has_changes = !batch.receipts.is_empty() || !batch.messages.is_empty();
        if !batch.receipts.is_empty() {
            self.session.hub.relay().apply_receipts(batch.receipts).await?;
        }
        let origins: Vec<_> = batch.messages.iter().map(|relayed| origin(&relayed.draft)).collect();
        let for_the_channel: Vec<bool> =
            batch.messages.iter().map(|relayed| relayed.draft.restored.is_some()).collect();
        let answers = self.session.hub.submit_relayed(batch.messages).await;
        for (((id, hub, to), is_for_the_channel), answer) in
            origins.into_iter().zip(for_the_channel).zip(answers)
        {
            let outcomes = outcome(self.session, id, &to, answer)?;
            // A post that is only shown in the channel has no recipient on this hub and therefore no receipt.
            if !is_for_the_channel {
                self.send_receipts(id, &hub, outcomes).await?;
            }
        }
        self.publisher.push_acked(Some(Progress { sequence: self.read, has_changes }));
        Ok(())
    }

    /// Sends receipts for a message to the hub that sent the message.
    async fn send_receipts(
        &mut self,
        id: MessageId,
        hub: &Name,
        outcomes: Vec<RecipientOutcome>,
    ) -> Result<(), NatsError> {
        let session = self.session;
        for (agents, refused) in outcomes {
            let envelope = EnvelopeKind::Receipt;
            let reply =
                DeliveryReceipt { v: VERSION, envelope, hub: session.me.clone(), id, agents, refused };
            let word = if reply.refused.is_some() { "refused" } else { "taken" };
            // Idempotency key: a repeated receipt of the same hub for the same message is a duplicate.
            let key = format!("{id}.{}.{word}", token(&session.me));
            while self.publisher.is_full() {
                let acked = self.publisher.next_ack().await?;
                self.record_ack(acked).await?;
            }
            let subject = session.subjects.receipt(&session.me, hub);
            if self.publisher.send(subject, key, to_bytes(&reply), None).await?.is_some() {
                tracing::warn!(message = %id, "a receipt is larger than NATS allows (max_payload)");
            }
        }
        Ok(())
    }
}

/// Returns true if the consumer has delivered everything that it covers and all of it was ingested.
async fn is_drained(consumer: &Consumer<pull::Config>, delivered: u64) -> Result<bool, NatsError> {
    let info = consumer.get_info().await.map_err(NatsError::server("describe a consumer"))?;
    Ok(info.num_pending == 0 && info.delivered.consumer_sequence == delivered)
}

/// Returns true if a message is for this hub or for a group that this hub receives.
///
/// The check is needed because a 2.9 server does not filter by a list of subjects.
fn is_wanted(session: &Session, interest: &Interest, subject: &str) -> bool {
    let (subjects, own) = (&session.subjects, token(&session.me));
    let is_own = subjects.writer(subject) == Some(&own);
    let is_elsewhere = subjects.hub_of(subject).is_some_and(|hub| hub != own);
    let is_unread = subjects.group_of(subject).is_some_and(|group| !interest.covers_token(group));
    !is_own && !is_elsewhere && !is_unread
}

/// Decodes the usable messages and receipts of a batch.
async fn decode_batch(session: &Session, interest: &Interest, chunk: &[Message]) -> Result<Batch, NatsError> {
    let mut batch = Batch::default();
    let wanted: Vec<_> =
        chunk.iter().filter(|message| is_wanted(session, interest, &message.subject)).collect();
    if wanted.is_empty() {
        return Ok(batch);
    }
    let directory = session.hub.directory().await?;
    let is_hub = |realm: &Name| directory.agents_of_hub(realm).next().is_some();
    for message in wanted {
        let writer = session.subjects.writer(&message.subject).unwrap_or_default();
        let envelope = Envelope::parse(&message.payload).and_then(|envelope| {
            // The server authorizes by subject, so the payload must not claim to come from another hub.
            if token(envelope.hub()) == writer {
                return Ok(envelope);
            }
            let problem = "does not match the hub in the subject".to_owned();
            Err(Malformed::Field { field: "hub", problem })
        });
        let sorted = envelope.and_then(|envelope| match envelope {
            Envelope::Message(wire) => {
                let channel = wire.posted_in.clone();
                let relayed = from_wire(*wire, &session.me, is_hub)?;
                batch.messages.extend(filter_for_hub(relayed, channel.as_ref(), &directory));
                Ok(())
            }
            Envelope::Receipt(reply) => {
                batch.receipts.extend(receipts(reply));
                Ok(())
            }
            Envelope::ReceiptBatch(words) => {
                batch.receipts.extend(receipt_verdicts(words));
                Ok(())
            }
        });
        if let Err(error) = sorted {
            tracing::warn!(subject = %message.subject, reason = %error, "skipped a message from another hub");
        }
    }
    Ok(batch)
}

fn receipts(reply: DeliveryReceipt) -> impl Iterator<Item = RemoteReceipt> {
    let DeliveryReceipt { hub, id, agents, refused, .. } = reply;
    let status = refused.map_or(ReceiptStatus::Accepted, |reason| ReceiptStatus::Refused { reason });
    agents.into_iter().map(move |name| RemoteReceipt {
        id,
        agent: AgentId { name, realm: Some(hub.clone()) },
        status: status.clone(),
    })
}

fn receipt_verdicts(words: ReceiptBatch) -> impl Iterator<Item = RemoteReceipt> {
    let ReceiptBatch { hub, said, .. } = words;
    parse_entries(said).into_iter().map(move |ReaderReceipt { id, agent, became, note }| RemoteReceipt {
        id,
        agent: AgentId { name: agent, realm: Some(hub.clone()) },
        status: match became {
            ReaderState::Seen => ReceiptStatus::Seen,
            ReaderState::Acknowledged => ReceiptStatus::Acknowledged { note },
        },
    })
}

fn origin(draft: &switchboard_hub::Draft) -> (MessageId, Name, Address) {
    let hub = match &draft.route {
        Some(switchboard_core::Route::Hub { hub }) => hub.clone(),
        _ => Name::human(),
    };
    (draft.id, hub, draft.to.clone())
}

/// Returns which recipients on this hub a message reached, or an error if the message must be redelivered.
fn outcome(
    session: &Session,
    id: MessageId,
    to: &Address,
    answer: Result<Accepted, HubError>,
) -> Result<Vec<RecipientOutcome>, NatsError> {
    let refused = |reason: String| match to {
        Address::Agent(agent) => {
            vec![(vec![agent.name.clone()], Some(format!("hub {}: {reason}", session.me)))]
        }
        _ => Vec::new(),
    };
    match answer {
        Ok(accepted) => Ok(by_outcome(to, &accepted.deliveries)),
        // A group without members on this hub concerns other hubs only.
        Err(HubError::Unresolved(ResolveError::EmptyGroup { .. } | ResolveError::UnknownTeam { .. })) => {
            Ok(Vec::new())
        }
        Err(
            error @ (HubError::Unresolved(_)
            | HubError::BodyTooLarge { .. }
            | HubError::MetadataTooLarge { .. }),
        ) => {
            tracing::warn!(message = %id, reason = %error, "refused a message from another hub");
            Ok(refused(error.to_string()))
        }
        Err(error @ (HubError::Conflict { .. } | HubError::DamagedMessage { .. })) => {
            tracing::warn!(message = %id, reason = %error_chain(&error), "skipped a message from another hub");
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}

/// Groups recipients by outcome: reached, or refused with the reason.
///
/// The recipients are named as the other hub knows them, because it does not know to whom an agent's messages are
/// forwarded on this hub.
fn by_outcome(to: &Address, deliveries: &[Delivery]) -> Vec<RecipientOutcome> {
    let is_refused = |d: &&Delivery| matches!(d.state, DeliveryState::Refused | DeliveryState::Expired);
    let name = |d: &Delivery| match to {
        Address::Agent(agent) => agent.name.clone(),
        _ => d.agent.name.clone(),
    };
    let names = |d: Vec<&Delivery>| d.into_iter().map(name).collect::<Vec<_>>();
    let (refused, taken): (Vec<_>, Vec<_>) = deliveries.iter().partition(is_refused);
    let reason = refused.first().map(|d| d.note.clone().unwrap_or_else(|| d.state.to_string()));
    let outcomes = [(names(taken), None), (names(refused), reason)];
    outcomes.into_iter().filter(|(names, _)| !names.is_empty()).collect()
}
