//! Baselines for the hub of a swarm: bare signature verification, and bare journaling.

use std::num::NonZero;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ed25519_dalek::Signature;
use futures_util::future::try_join_all;
use serde_json::Map;
use switchboard_core::{AgentId, Door, Kind, Name, NativeId, Route};
use switchboard_hub::{Draft, Hub, HubConfig, Registration};

use super::messages::{Senders, SignedMessage};
use super::stage::{AGENT, Stage};
use crate::load::body;
use crate::run_folder::RunFolder;
use crate::stats::rate;

/// Measures verified signatures per second on all cores, with the same strict verification as the door.
pub(super) fn verify(senders: &Senders, messages: &[SignedMessage]) -> anyhow::Result<f64> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let keys: Vec<_> = senders.senders.iter().map(|(_, key)| key.verifying_key()).collect();
    let holds = |message: &SignedMessage| {
        let signature = Signature::from_bytes(&message.signature);
        keys[message.sender].verify_strict(&message.digest, &signature).is_ok()
    };
    let began = Instant::now();
    let all_hold = std::thread::scope(|scope| {
        let parts = messages.chunks(messages.len().div_ceil(cores));
        let threads: Vec<_> = parts.map(|part| scope.spawn(|| part.iter().all(holds))).collect();
        threads.into_iter().all(|thread| thread.join().unwrap_or(false))
    });
    let time = began.elapsed();
    ensure!(all_hold, "a signature does not hold");
    Ok(rate(messages.len(), time))
}

/// Hub in this process that makes no deliveries.
pub(super) struct Journal {
    hub: Hub,
    from: Vec<AgentId>,
    to: AgentId,
    scope: String,
}

impl Journal {
    pub(super) async fn open(place: &RunFolder, stage: &Stage, clients: usize) -> anyhow::Result<Self> {
        let hub = Hub::open(HubConfig::new(place.fresh()?)).await?;
        hub.agents().register(Registration::mailbox(Name::parse(AGENT)?)).await?;
        let from = (0..clients).map(|number| format!("plain-{number}@bench").parse::<AgentId>());
        let from = from.collect::<Result<_, _>>()?;
        Ok(Self { hub, from, to: AGENT.parse()?, scope: stage.swarm.to_string() })
    }

    /// Journals the messages with as many concurrent tasks as there are clients.
    ///
    /// Returns the latency of each message and the total duration.
    pub(super) async fn write(self, messages: &[SignedMessage]) -> anyhow::Result<(Vec<Duration>, Duration)> {
        let content = body();
        let began = Instant::now();
        let clients = self.from.len();
        let work = (0..clients).map(async |number| {
            let mut times = Vec::new();
            for message in messages.iter().skip(number).step_by(clients) {
                let began = Instant::now();
                self.hub.submit(self.draft(message, &content)?).await?;
                times.push(began.elapsed());
            }
            anyhow::Ok(times)
        });
        let times = try_join_all(work).await?.concat();
        let time = began.elapsed();
        let written = self.hub.database().health().await?.messages;
        self.hub.shut_down().await;
        ensure!(written == messages.len() as u64, "{written} of {} messages", messages.len());
        Ok((times, time))
    }

    /// Converts a message to the draft that the door would submit.
    fn draft(&self, message: &SignedMessage, content: &str) -> anyhow::Result<Draft> {
        let from = self.from.get(message.sender).context("a sender that nobody knows")?.clone();
        let text = |text: &str| serde_json::Value::String(text.to_owned());
        let metadata =
            [("swarm.type", "message"), ("swarm.sender", from.name.as_str()), ("swarm.recipient", AGENT)];
        Ok(Draft {
            id: self.hub.next_id(),
            from: from.clone(),
            to: self.to.clone().into(),
            kind: Kind::parse("message")?,
            body: content.to_owned(),
            in_reply_to: None,
            sent_at: self.hub.now(),
            expires_at: None,
            metadata: Map::from_iter(metadata.map(|(key, value)| (key.to_owned(), text(value)))),
            native: NativeId {
                door: Door::Swarm,
                scope: format!("{} {} {AGENT}", self.scope, from.name),
                id: message.id.clone(),
            },
            key: None,
            native_is_id: false,
            verified: true,
            route: Some(Route::Peer { agent: from }),
            signed: Some(message.signed.clone()),
            allow_unregistered: true,
            restored: None,
        })
    }
}
