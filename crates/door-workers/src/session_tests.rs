use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use switchboard_core::{Budget, Budgets};
use switchboard_hub::HubConfig;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::*;
use crate::client::command_line;
use crate::config::Config;
use crate::test_router::{Rig, TIMEOUT};

/// Repeats, because the result depended on the order of two checks.
#[tokio::test]
async fn router_stop_reaches_connected_clients() {
    let rig = Rig::new().await;
    for _ in 0..60 {
        let done = CancellationToken::new();
        let mut client = rig.client_until(Access::default(), done.clone());
        client.request("jobs_list", json!({})).await;
        done.cancel();
        let parting = client.next_of("cut_off").await;
        assert_eq!(parting.data["reason"], "the router was stopped");
        assert!(client.client.next().await.is_err(), "it was not hung up on");
    }
    rig.close().await;
}

#[tokio::test]
async fn subscriber_gets_answers_about_other_jobs() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    client.launch(json!({ "agent": "echo", "job_id": "known" })).await;
    let quiet = client.launch(json!({ "agent": "echo" })).await;
    client.request("subscribe", json!({ "jobs": ["known"] })).await;
    let job = client.launch(json!({ "agent": "echo" })).await;
    client.injected(&job, 0, "x").await;
    client.until_complete(None).await;
    assert_eq!(client.request("terminate", json!({ "job_id": job })).await.event, "job_terminated");
    // A rejection is sent directly and changes no subscription.
    assert_eq!(client.rejected("launch", json!({ "agent": "echo", "job_id": quiet })).await, "bad_field");
    let mut other = rig.client();
    other.injected(&quiet, 0, "not for the first").await;
    other.until_complete(None).await;
    client.injected("known", 0, "y").await;
    let heard = client.until_complete(None).await;
    assert!(heard.iter().all(|event| event.data["job_id"] != *quiet), "{heard:?}");
    rig.close().await;
}

#[tokio::test]
async fn budget_rejection_reserves_no_slot() {
    let everyone = Budget { messages_per_hour: Some(2), ..Budget::default() };
    let folder = tempfile::TempDir::new().unwrap();
    let budgets = Budgets { everyone, ..Budgets::default() };
    let hub = HubConfig { budgets, ..HubConfig::new(folder.path()) };
    let rig = Rig::open_with(folder, Config { queue: 1, ..Config::default() }, hub).await;
    let mut client = rig.client();
    client.request("hello", json!({ "agent": "planner" })).await;
    let job = client.launch(json!({ "agent": "echo" })).await;
    for _ in 0..2 {
        client.injected(&job, 0, "within").await;
        client.until_complete(None).await;
    }
    // With one slot in the queue, the second injection could be rejected as full.
    for _ in 0..2 {
        let beyond = json!({ "job_id": job, "node_id": 0, "content": "beyond" });
        assert_eq!(client.rejected("inject", beyond).await, "over_budget");
    }
    rig.close().await;
}

#[tokio::test]
async fn client_cannot_act_as_hub_or_person() {
    let rig = Rig::new().await;
    let token = AccessToken { token: "secret".into(), owner: Some("bob".into()) };
    let mut own = rig.client();
    let mut other = rig.client_with(Access { tokens: vec![token], ..Access::default() });
    other.request("hello", json!({ "token": "secret" })).await;
    for agent in ["switchboard", "SwitchBoard"] {
        assert_eq!(own.rejected("hello", json!({ "agent": agent })).await, "not_allowed", "{agent}");
    }
    for agent in ["human", "Human", "switchboard"] {
        assert_eq!(other.rejected("hello", json!({ "agent": agent })).await, "not_allowed", "{agent}");
    }
    assert_eq!(own.request("hello", json!({ "agent": "human" })).await.event, "hello");
    assert_eq!(other.request("hello", json!({ "agent": "planner" })).await.event, "hello");
    rig.close().await;
}

#[tokio::test]
async fn silent_unauthenticated_client_is_disconnected() {
    let rig = Rig::with(Config { hello: Duration::from_millis(1), ..Config::default() }).await;
    let access =
        Access { tokens: vec![AccessToken { token: "secret".into(), owner: None }], ..Access::default() };
    let mut silent = rig.client_with(access);
    let parting = silent.next().await;
    assert_eq!(
        (parting.event.as_str(), &parting.data["reason"]),
        ("cut_off", &json!("no hello with a token in time"))
    );
    // A client that needs no token has no time limit.
    let mut quiet = rig.client();
    assert_eq!(quiet.request("hello", json!({})).await.event, "hello");
    rig.close().await;
}

#[tokio::test]
async fn future_cursor_is_rejected() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    client.launch(json!({ "agent": "echo" })).await;
    for from_seq in [1_000, u64::MAX] {
        assert_eq!(client.rejected("subscribe", json!({ "from_seq": from_seq })).await, "bad_field");
    }
    let newest = client.request("hello", json!({})).await.data["newest_seq"].clone();
    assert_eq!(client.request("subscribe", json!({ "from_seq": newest })).await.event, "subscribed");
    rig.close().await;
}

#[tokio::test]
async fn from_seq_is_exclusive() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo" })).await;
    client.inject(&job, 0, "x").await;
    let events = client.until_complete(None).await;
    for had in &events[..events.len() - 1] {
        let mut back = rig.client();
        let answer = back.request("subscribe", json!({ "from_seq": had.seq })).await;
        assert_eq!((answer.seq, &answer.data["from_seq"]), (had.seq, &json!(had.seq)));
        assert_eq!(back.next().await.seq, had.seq + 1);
    }
    rig.close().await;
}

/// A client that reads some bytes and then stops, until the disconnect reason is offered.
#[derive(Clone)]
struct Stuck {
    taken: Arc<Mutex<Vec<u8>>>,
    most: usize,
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut taken = self.taken.lock();
        let is_parting = bytes.windows(9).any(|part| part == b"\"cut_off\"");
        let room = if is_parting { bytes.len() } else { self.most.saturating_sub(taken.len()) };
        if room == 0 {
            // The clock wakes the writer.
            return Poll::Pending;
        }
        let count = room.min(bytes.len());
        taken.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn stalled_client_reads_reason_after_complete_line() {
    let rig = Rig::with(Config { stall: Duration::from_millis(300), ..Config::default() }).await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "echo": { "deltas": 50 } })).await;
    client.inject(&job, 0, "words that are repeated").await;
    client.until_complete(None).await;
    // Stops before the first byte, within a line, and within the first or second line.
    for most in [0, 1, 700, 1_500] {
        let stuck = Stuck { taken: Arc::default(), most };
        let (mut ours, theirs) = tokio::io::duplex(4 << 10);
        let subscribe = command_line("subscribe", "1", &json!({ "from_seq": 0 }));
        ours.write_all(subscribe.as_bytes()).await.unwrap();
        let (eof, done) = (CancellationToken::new(), CancellationToken::new());
        let access = Access::default();
        let serving =
            serve(&rig.router, theirs, stuck.clone(), Transport::Socket, &access, eof, done.clone());
        timeout(TIMEOUT, serving).await.expect("an end").unwrap();
        let text = String::from_utf8(stuck.taken.lock().clone()).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let parting = lines.pop().unwrap();
        assert_eq!(parting["event"], "cut_off");
        let last = lines.last().map_or(json!(0), |line| line["seq"].clone());
        assert_eq!((&parting["data"]["resume_from"], &parting["seq"]), (&last, &last), "{most}: {text}");
    }
    rig.close().await;
}

/// Returns a random field value, valid or invalid.
fn value(random: &mut fastrand::Rng, job: &str) -> Value {
    let values = [
        json!(job),
        json!("nobody"),
        json!(""),
        json!("all"),
        json!("echo"),
        json!("accept"),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(null),
        json!(true),
        json!([]),
        json!([0, 0]),
        json!([-1]),
        json!({}),
        json!({ "a": 1 }),
        json!({ "total_tokens": 1, "millis": 1, "deltas": 1 }),
    ];
    values[random.usize(..values.len())].clone()
}

/// The helpers panic without an answer, or on one that does not match its schema.
#[tokio::test]
async fn random_commands_are_all_answered() {
    const FIELDS: [&str; 18] = [
        "job_id",
        "swarm_id",
        "node_id",
        "nodes",
        "content",
        "agent",
        "prompt",
        "name",
        "cwd",
        "folders",
        "limits",
        "echo",
        "approval_id",
        "decision",
        "from_seq",
        "jobs",
        "client",
        "later",
    ];
    const OLDER: [&str; 5] =
        ["swarm_launch", "swarm_list", "swarm_status", "swarm_terminate", "approve_execution"];
    let rig = Rig::new().await;
    let mut client = rig.client();
    let commands: Vec<&str> = COMMANDS.into_iter().chain(OLDER).chain(["fly"]).collect();
    let mut job = client.launch(json!({ "agent": "echo" })).await;
    for seed in 0..1_500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let command = commands[random.usize(..commands.len())];
        let mut payload = json!({});
        for _ in 0..random.usize(..6) {
            payload[FIELDS[random.usize(..FIELDS.len())]] = value(&mut random, &job);
        }
        if random.bool() {
            payload["job_id"] = json!(job);
            payload["node_id"] = json!(0);
            payload["content"] = json!("x");
        }
        let id = format!("seed-{seed}");
        client.send_line(command_line(command, &id, &payload).trim()).await;
        let answer = loop {
            let event = client.next().await;
            if event.data["request_id"] == json!(id) {
                break event;
            }
        };
        if matches!(answer.event.as_str(), "job_terminated" | "swarm_terminated") {
            job = rig.client().launch(json!({ "agent": "echo" })).await;
        }
    }
    rig.close().await;
}
