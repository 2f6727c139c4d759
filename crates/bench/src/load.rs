//! Load generator: senders that wait for the reply to each message, over a time window.

use std::sync::Arc;
use std::time::{Duration, Instant};

use door_workspace::wire::MessageFile;
use door_workspace::{to_native, wire};
use serde_json::Map;
use switchboard_core::{IdClock, MessageId};
use switchboard_sys::clock::Clock;
use tokio::task::JoinSet;

/// Length of each message's body, in bytes.
const BODY: usize = 1024;

/// Name of the agent to which all messages are sent.
pub(crate) const READER: &str = "reader";

/// Load of one round: number of senders and duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) senders: usize,
    /// Time before the window, during which files reach their size and statements are prepared.
    pub(crate) warm_up: Duration,
    pub(crate) length: Duration,
}

/// Time window in which replies count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    start: Instant,
    end: Instant,
}

/// Result of one measured round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Latencies of the replies within the window.
    pub(crate) latencies: Vec<Duration>,
    /// Length of the window.
    pub(crate) length: Duration,
    /// Number of all sends, including those before and after the window.
    pub(crate) all: usize,
}

impl Load {
    pub(crate) fn window(&self) -> Window {
        let start = Instant::now() + self.warm_up;
        Window { start, end: start + self.length }
    }

    /// Runs the senders on this runtime and returns their results; `send` receives the sender's number.
    pub(crate) async fn drive<F, S>(&self, send: F) -> anyhow::Result<Round>
    where
        F: Fn(usize) -> S + Send + Sync + 'static,
        S: Future<Output = anyhow::Result<()>> + Send,
    {
        let (send, window) = (Arc::new(send), self.window());
        let mut senders = JoinSet::new();
        for number in 0..self.senders {
            let send = send.clone();
            senders.spawn(async move {
                let mut round = Round::default();
                while let Some(began) = window.is_open() {
                    send(number).await?;
                    round.note(window, began);
                }
                anyhow::Ok(round)
            });
        }
        let mut total = Round { length: self.length, ..Round::default() };
        while let Some(round) = senders.join_next().await {
            total.add(round??);
        }
        Ok(total)
    }
}

impl Window {
    /// Returns the current time, unless the window is over.
    pub(crate) fn is_open(self) -> Option<Instant> {
        let now = Instant::now();
        (now < self.end).then_some(now)
    }
}

impl Round {
    /// Records a reply that has just arrived.
    pub(crate) fn note(&mut self, window: Window, began: Instant) {
        let now = Instant::now();
        self.all += 1;
        if (window.start..window.end).contains(&now) {
            self.latencies.push(now - began);
        }
    }

    /// Adds the results of another sender in the same window.
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.all += other.all;
    }
}

/// Returns the text of every message.
pub(crate) fn body() -> String {
    "The quick brown fox jumps over the lazy dog. ".chars().cycle().take(BODY).collect()
}

/// Message file with a variable id, which provides the bytes that the baselines store.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    id_at: usize,
}

impl Template {
    pub(crate) fn new() -> Self {
        let id = to_native(new_id(&mut IdClock::default()));
        let file = MessageFile {
            id: id.clone(),
            action: "status-update".into(),
            sender: sender(0),
            recipient: READER.into(),
            payload: body(),
            reply_to: None,
            metadata: None,
            team: None,
            persona: None,
            created_at: Some("2025-01-01T00:00:00.000Z".into()),
            extra: Map::new(),
        };
        let bytes = wire::pretty(&file);
        let id_at = bytes.windows(id.len()).position(|part| part == id.as_bytes()).unwrap_or_default();
        Self { bytes, id_at }
    }

    /// Returns the bytes of a message with this id.
    pub(crate) fn with(&self, id: MessageId) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (place, byte) in bytes.iter_mut().skip(self.id_at).zip(to_native(id).bytes()) {
            *place = byte;
        }
        bytes
    }
}

/// Returns the name of a sender.
pub(crate) fn sender(number: usize) -> String {
    format!("sender-{number}")
}

/// Creates a message id in the same way as the hub.
pub(crate) fn new_id(ids: &mut IdClock) -> MessageId {
    ids.next(Clock::system().now(), fastrand::u128(..))
}
