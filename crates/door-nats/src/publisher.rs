//! Publisher with one acknowledgement per message and a bounded window.
//!
//! All acknowledgements arrive on one subscription and are matched with the unacknowledged messages. A request per
//! message would need a timer, a channel and a table entry for each message, which costs more than the message itself.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{Client, HeaderMap, Message, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;

use crate::error::NatsError;
use crate::session::Session;

/// Maximum number of unacknowledged messages; beyond that, the publisher waits (backpressure).
const WINDOW: usize = 1024;

/// Maximum number of unacknowledged bytes; beyond that, the publisher waits (backpressure).
const WINDOW_BYTES: usize = 16 << 20;

/// Publishes messages and tracks the unacknowledged ones, each with a tag of the caller.
pub(crate) struct Publisher<T> {
    client: Client,
    timeout: Duration,
    /// Prefix of the reply subjects; the number of the message is appended.
    inbox: String,
    answers: Subscriber,
    /// Number of the oldest unacknowledged message.
    first: u64,
    unacked: VecDeque<Unacked<T>>,
    bytes: usize,
}

/// A published message whose tag was not returned to the caller yet.
struct Unacked<T> {
    tag: T,
    bytes: usize,
    state: AckState,
}

/// Acknowledgement state of a message.
#[derive(Clone, Copy)]
enum AckState {
    /// The message is not acknowledged yet.
    Unknown,
    /// The message was already in the stream, so it was not sent.
    Before,
    /// The server stored the message under this sequence.
    At(u64),
}

/// JetStream publish acknowledgement: the sequence of the stored message, or the error.
#[derive(Deserialize)]
struct PubAck {
    #[serde(default)]
    seq: u64,
    error: Option<async_nats::jetstream::Error>,
}

impl<T> Publisher<T> {
    pub(crate) async fn open(session: &Session) -> Result<Self, NatsError> {
        let inbox = format!("{}.", session.client.new_inbox());
        let answers = session.client.subscribe(format!("{inbox}*")).await;
        Ok(Self {
            client: session.client.clone(),
            timeout: session.config.timeout,
            inbox,
            answers: answers.map_err(NatsError::server("answer"))?,
            first: 0,
            unacked: VecDeque::new(),
            bytes: 0,
        })
    }

    /// Returns true if no message is unacknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.unacked.is_empty()
    }

    /// Returns true if an acknowledgement must arrive before the next send.
    pub(crate) fn is_full(&self) -> bool {
        self.unacked.len() >= WINDOW || (self.bytes > WINDOW_BYTES && !self.unacked.is_empty())
    }

    /// Publishes a message with an id by which the server deduplicates.
    ///
    /// Returns the tag if the message exceeds the server's maximum payload.
    pub(crate) async fn send(
        &mut self,
        subject: String,
        id: String,
        payload: Vec<u8>,
        tag: T,
    ) -> Result<Option<T>, NatsError> {
        let number = self.first + u64::try_from(self.unacked.len()).unwrap_or(u64::MAX);
        let reply = format!("{}{number}", self.inbox);
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, id);
        let bytes = payload.len();
        match self.client.publish_with_reply_and_headers(subject, reply, headers, payload.into()).await {
            Ok(()) => {}
            Err(error) if error.kind() == async_nats::PublishErrorKind::MaxPayloadExceeded => {
                return Ok(Some(tag));
            }
            Err(error) => return Err(NatsError::server("accept a message")(error)),
        }
        self.bytes += bytes;
        self.unacked.push_back(Unacked { tag, bytes, state: AckState::Unknown });
        Ok(None)
    }

    /// Queues the tag of a message that the stream already has, so that tags return in publish order.
    pub(crate) fn push_acked(&mut self, tag: T) {
        self.unacked.push_back(Unacked { tag, bytes: 0, state: AckState::Before });
    }

    /// Waits until the oldest message is acknowledged and returns its tag.
    ///
    /// The tag comes with the stream sequence if this publisher sent the message. Returns `None` if no message is
    /// unacknowledged.
    pub(crate) async fn next_ack(&mut self) -> Result<Option<(T, Option<u64>)>, NatsError> {
        loop {
            let sequence = match self.unacked.front().map(|pending| pending.state) {
                None => return Ok(None),
                Some(AckState::Unknown) => {
                    self.read_ack().await?;
                    continue;
                }
                Some(AckState::Before) => None,
                Some(AckState::At(sequence)) => Some(sequence),
            };
            let Some(pending) = self.unacked.pop_front() else { return Ok(None) };
            self.first += 1;
            self.bytes -= pending.bytes;
            return Ok(Some((pending.tag, sequence)));
        }
    }

    /// Reads one acknowledgement. A timeout means that the server has stopped or has lost the message.
    async fn read_ack(&mut self) -> Result<(), NatsError> {
        let answer = match self.answers.next().now_or_never() {
            Some(answer) => answer,
            None => tokio::time::timeout(self.timeout, self.answers.next())
                .await
                .map_err(NatsError::server("acknowledge in time"))?,
        };
        let answer = answer.ok_or(NatsError::Lost)?;
        let number = answer.subject.strip_prefix(self.inbox.as_str()).and_then(|number| number.parse().ok());
        let place = number.and_then(|number: u64| usize::try_from(number.checked_sub(self.first)?).ok());
        let pending = place.and_then(|place| self.unacked.get_mut(place));
        // This is a repeated acknowledgement; the tag of the message was already returned.
        let Some(pending) = pending else { return Ok(()) };
        pending.state = AckState::At(sequence(&answer).map_err(NatsError::server("store a message"))?);
        Ok(())
    }
}

/// Returns the sequence that the server assigned to a message.
fn sequence(answer: &Message) -> Result<u64, async_nats::Error> {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Err("no stream accepts messages at the moment".into());
    }
    match serde_json::from_slice(&answer.payload)? {
        PubAck { error: Some(error), .. } => Err(error.into()),
        PubAck { seq, .. } => Ok(seq),
    }
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
