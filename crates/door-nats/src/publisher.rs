//! Publishing, with the server's word on each message.
//!
//! All answers come in over one subscription and are counted off against what is on its way. Asking for each by itself
//! would cost a timer, a channel and an entry in a table per message, which is more than the message itself does.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{Client, HeaderMap, Message, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;

use crate::error::NatsError;
use crate::session::Session;

/// Most messages on their way to the server without its word that it has them. Whoever publishes waits beyond that.
const WINDOW: usize = 1024;

/// Most bytes on their way, likewise.
const WINDOW_BYTES: usize = 16 << 20;

/// A way to the server, and what is on it, each with what its sender has to know again.
pub(crate) struct Publisher<T> {
    client: Client,
    timeout: Duration,
    /// What the subjects of the answers begin with; the number of the message follows.
    inbox: String,
    answers: Subscriber,
    /// The number of the first message that is on its way.
    first: u64,
    unacked: VecDeque<Unacked<T>>,
    bytes: usize,
}

/// A message on its way.
struct Unacked<T> {
    tag: T,
    bytes: usize,
    state: AckState,
}

/// Whether the server has a message.
#[derive(Clone, Copy)]
enum AckState {
    /// It has not said so yet.
    Unknown,
    /// It had it before, and was not sent it.
    Before,
    /// Under this sequence.
    At(u64),
}

/// What a server answers: where it keeps the message, or why it does not.
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

    /// True if nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.unacked.is_empty()
    }

    /// Whether something has to land before more is sent.
    pub(crate) fn is_full(&self) -> bool {
        self.unacked.len() >= WINDOW || (self.bytes > WINDOW_BYTES && !self.unacked.is_empty())
    }

    /// Sends a message under an id by which the server recognises it. Gives the cargo back where the message is larger
    /// than the server takes.
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
            Err(error) => return Err(NatsError::server("take a message")(error)),
        }
        self.bytes += bytes;
        self.unacked.push_back(Unacked { tag, bytes, state: AckState::Unknown });
        Ok(None)
    }

    /// Lets something take its place in the order that the server has already.
    pub(crate) fn push_acked(&mut self, tag: T) {
        self.unacked.push_back(Unacked { tag, bytes: 0, state: AckState::Before });
    }

    /// Waits until the server has the first of those on their way, and returns it with its sequence, if it was sent now;
    /// nothing where nothing is on its way.
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

    /// Hears one answer. A server that has none for as long as is set has stopped, or has lost the message.
    async fn read_ack(&mut self) -> Result<(), NatsError> {
        let answer = match self.answers.next().now_or_never() {
            Some(answer) => answer,
            None => tokio::time::timeout(self.timeout, self.answers.next())
                .await
                .map_err(NatsError::server("answer in time"))?,
        };
        let answer = answer.ok_or(NatsError::Lost)?;
        let number = answer.subject.strip_prefix(self.inbox.as_str()).and_then(|number| number.parse().ok());
        let place = number.and_then(|number: u64| usize::try_from(number.checked_sub(self.first)?).ok());
        let pending = place.and_then(|place| self.unacked.get_mut(place));
        // What is answered twice has landed already.
        let Some(pending) = pending else { return Ok(()) };
        pending.state = AckState::At(sequence(&answer).map_err(NatsError::server("keep a message"))?);
        Ok(())
    }
}

/// The sequence that a server gave a message.
fn sequence(answer: &Message) -> Result<u64, async_nats::Error> {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Err("no stream takes messages at the moment".into());
    }
    match serde_json::from_slice(&answer.payload)? {
        PubAck { error: Some(error), .. } => Err(error.into()),
        PubAck { seq, .. } => Ok(seq),
    }
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
