//! A linked hub for tests: a workspace, its `serve`, and its journal.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use futures_util::TryStreamExt;
use serde_json::{Value, json};
use switchboard_core::{DeliveryState, Door, Kind, MessageId};
use switchboard_hub::{Draft, Hub, HubConfig, Stored};
use test_support::{Running, Sandbox, poll};

use crate::BINARY;

/// For a cluster that elects a leader on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(2);

/// A workspace whose hub is linked.
pub(crate) struct Linked {
    pub(crate) name: &'static str,
    pub(crate) sandbox: Sandbox,
    pub(crate) serve: Option<Running>,
}

impl Linked {
    /// Starts a hub that serves, with these agents.
    pub(crate) fn start(name: &'static str, url: &str, agents: &[&str], more: Value) -> Self {
        Self::start_with(name, url, agents, more, json!({}))
    }

    /// Does the same with more sections of settings.
    pub(crate) fn start_with(
        name: &'static str,
        url: &str,
        agents: &[&str],
        more: Value,
        mut settings: Value,
    ) -> Self {
        let sandbox = Sandbox::with_agents(BINARY, agents);
        let mut nats = json!({ "url": url, "hub": name, "presenceSeconds": 4 });
        nats.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        settings["nats"] = nats;
        sandbox.configure_user(&settings.to_string());
        let serve = Some(sandbox.serve());
        Self { name, sandbox, serve }
    }

    /// Kills `serve` and restarts it.
    pub(crate) fn kill_and_restart(&mut self) {
        self.serve.take().unwrap().kill();
        self.serve = Some(self.sandbox.serve());
    }

    /// Waits until an address resolves.
    pub(crate) fn wait_for(&self, agent: &str) {
        poll::until(&format!("{} to know {agent}; {}", self.name, self.errors()), || {
            let agents = self.sandbox.json(["agents"]);
            agents.iter().any(|known| known["name"] == agent).then_some(())
        });
    }

    /// Returns an agent's state in the presence list.
    pub(crate) fn presence(&self, agent: &str) -> Option<String> {
        let known = self.sandbox.json(["who"]).into_iter().find(|known| known["name"] == agent)?;
        known["presence"].as_str().map(str::to_owned)
    }

    /// Sends as an agent; returns the message's id.
    pub(crate) fn send(&self, from: &str, args: &[&str]) -> Value {
        let ran = self.sandbox.run([&["--json", "--from", from, "send"], args].concat());
        serde_json::from_str(&ran.ok()).unwrap()
    }

    /// Waits until the receipt of a message has this state for one agent.
    pub(crate) fn wait_for_state(&self, id: &str, agent: &str, state: &str) {
        let mut last = Value::Null;
        let found = poll::within(poll::TIMEOUT, || {
            last = self.sandbox.json(["receipt", id]).remove(0);
            let deliveries = last["deliveries"].as_array().unwrap();
            deliveries.iter().any(|d| d["agent"] == agent && d["state"] == state).then_some(())
        });
        assert!(found.is_some(), "{agent} should have {state}: {last}; {}", self.errors());
    }

    /// Waits until an agent has an unread message with this text.
    pub(crate) fn wait_for_mail(&self, agent: &str, body: &str) -> Value {
        poll::until(&format!("'{body}' for {agent} at {}; {}", self.name, self.errors()), || {
            let mail = self.sandbox.json(["inbox", agent, "--limit", "1000"]);
            mail.into_iter().find(|message| message["body"] == body)
        })
    }

    pub(crate) fn errors(&self) -> String {
        self.serve.as_ref().map(Running::errors).unwrap_or_default()
    }

    /// Opens the hub in this process.
    pub(crate) async fn hub(&self) -> Hub {
        Hub::open(HubConfig::new(self.sandbox.file(""))).await.unwrap()
    }
}

/// Journals many numbered messages.
pub(crate) async fn write(hub: &Hub, from: &str, to: &str, numbers: Range<usize>) -> Vec<MessageId> {
    write_long(hub, from, to, numbers, "").await
}

/// Journals many numbered messages of 20 kB: more than sockets and queues hold between a hub and its server.
pub(crate) async fn write_burst(hub: &Hub, from: &str, to: &str, numbers: Range<usize>) -> Vec<MessageId> {
    write_long(hub, from, to, numbers, &format!(" {}", "x".repeat(20_000))).await
}

async fn write_long(hub: &Hub, from: &str, to: &str, numbers: Range<usize>, text: &str) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for number in numbers {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        let body = format!("number {number}{text}");
        let draft = hub.draft(Door::Workspace, from, to, Kind::status_update(), body);
        let draft = Draft { verified: true, ..draft };
        ids.push(draft.id);
        hub.submit(draft).await.unwrap();
    }
    ids
}

/// Returns the numbers of messages in a journal, in its order.
pub(crate) async fn numbers(hub: &Hub) -> Vec<usize> {
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let page = hub.journal().entries(after, 1000).await.unwrap();
        after = page.items.last().map_or(after, |stored| stored.seq);
        for Stored { message, .. } in page.items {
            let number = message.body.strip_prefix("number ").and_then(|rest| rest.split(' ').next());
            found.extend(number.map(|number| number.parse::<usize>().unwrap()));
        }
        if !page.more {
            return found;
        }
    }
}

/// Returns how often each numbered message is in a journal.
pub(crate) async fn numbered(hub: &Hub) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for number in numbers(hub).await {
        *counts.entry(number).or_default() += 1;
    }
    counts
}

/// Asserts that a journal has these numbered messages, each once and in order.
pub(crate) async fn assert_in_order(hub: &Hub, expected: Range<usize>) {
    let found = numbers(hub).await;
    let breaks: Vec<_> = found.windows(2).filter(|pair| pair[0] + 1 != pair[1]).collect();
    assert!(found == expected.collect::<Vec<_>>(), "{} messages, which break at {breaks:?}", found.len());
}

/// Waits until a journal has this number of messages; returns how often it has each.
pub(crate) async fn wait_for_all(hub: &Hub, expected: usize) -> BTreeMap<usize, usize> {
    let all = async {
        let mut changes = hub.changes();
        while numbered(hub).await.len() < expected {
            changes.next().await;
        }
    };
    let arrived = tokio::time::timeout(LONG, all).await.is_ok();
    let counts = numbered(hub).await;
    assert!(arrived, "{} of {expected} messages arrived", counts.len());
    counts
}

/// Waits until the other hub has accepted each of these messages.
pub(crate) async fn wait_for_receipts(hub: &Hub, ids: &[MessageId]) {
    let mut changes = hub.changes();
    for id in ids {
        let taken = async {
            loop {
                let (_, receipt) = hub.journal().receipt(*id).await.unwrap().unwrap();
                if receipt.deliveries.iter().all(|d| d.state == DeliveryState::Delivered) {
                    return;
                }
                changes.next().await;
            }
        };
        assert!(tokio::time::timeout(LONG, taken).await.is_ok(), "{id} has no receipt");
    }
}

/// Returns how many messages the stream has for a subject.
pub(crate) async fn in_stream(url: &str, subject: &str) -> usize {
    let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
    let stream = context.get_stream("switchboard_messages").await.unwrap();
    let counts = stream.info_with_subjects(subject).await.unwrap();
    counts.try_fold(0, |sum, (_, count)| std::future::ready(Ok(sum + count))).await.unwrap()
}

/// Waits until the stream has more than this number of messages from lab to office.
pub(crate) async fn wait_for_growth(url: &str, count: usize) {
    let growth = async {
        while in_stream(url, "switchboard.lab.hub.office.message").await <= count {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(LONG, growth).await.is_ok(), "the stream has {count} messages and no more");
}
