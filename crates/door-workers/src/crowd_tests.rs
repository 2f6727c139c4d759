//! Many clients at once; one does not read, one sends invalid lines.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::config::Config;
use crate::listen::{Listener, listen};
use crate::session::Access;
use crate::test_router::{Rig, TIMEOUT, TestClient, validate_event};

const CLIENTS: usize = 10;
const EACH: usize = 1_000;
const NODES: u32 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_injections_from_ten_clients() {
    // The lag limit disconnects a client here, not the stall limit, however slow the machine is.
    let stall = TIMEOUT * 10;
    let rig = Rig::with(Config { lag: 50_000, stall, ..Config::default() }).await;
    let path = rig.folder.path().join("r.sock");
    let address = format!("unix:{}", path.display());
    let listener = Listener::bind(&address).await.unwrap();
    let (router, done) = (rig.router.clone(), CancellationToken::new());
    let until = done.clone();
    let listening = tokio::spawn(async move { listen(&router, listener, Access::default(), until).await });
    let mut boss = connect(&address).await;
    let job = boss.launch(json!({ "agent": "echo", "nodes": NODES })).await;
    // From the first event, so that a client that sends nothing sees everything.
    let mut watcher = connect(&address).await;
    watcher.request("subscribe", json!({ "from_seq": 0 })).await;
    let mut deaf = connect(&address).await;
    deaf.request("subscribe", json!({})).await;
    let stop = CancellationToken::new();
    let garbage = tokio::spawn(talk_nonsense(path, stop.clone()));

    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let (mut client, job) = (connect(&address).await, job.clone());
        clients.spawn(async move {
            client.request("hello", json!({ "client": format!("c{number}") })).await;
            // Only its own job, so that it has no more to read than it can keep up with.
            client.request("subscribe", json!({ "jobs": ["none"] })).await;
            for index in 0..EACH {
                let node = u32::try_from(index).unwrap() % NODES;
                client.inject(&job, node, &format!("{number}:{index}")).await;
            }
            client
        });
    }
    let mut acks: HashMap<String, String> = HashMap::new();
    let mut ends: HashMap<String, u32> = HashMap::new();
    let mut accepted: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut ran: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut answers: HashMap<String, String> = HashMap::new();
    let mut kinds: HashMap<String, usize> = HashMap::new();
    while ends.len() < CLIENTS * EACH {
        let event = timeout(TIMEOUT, watcher.client.next()).await.expect("an event").unwrap();
        // Every kind, but not all of 100,000 lines: a reader must not be slower than the router.
        let count = kinds.entry(event.event.clone()).or_default();
        *count += 1;
        if *count <= 50 {
            validate_event(&event);
        }
        let id = event.data["injection_id"].as_str().unwrap_or_default().to_owned();
        let node = event.data["node_id"].as_u64().unwrap_or_default();
        match event.event.as_str() {
            "inject_ack" => {
                let injection = format!("{}/{}", event.data["client"], event.data["request_id"]);
                assert!(acks.insert(injection, id.clone()).is_none(), "acknowledged twice: {}", event.line);
                accepted.entry(node).or_default().push(id);
            }
            "turn_started" => ran.entry(node).or_default().push(id),
            "assistant" => drop(answers.insert(id, event.data["content"].as_str().unwrap().to_owned())),
            "turn_complete" => {
                assert_eq!(event.data["status"], "completed");
                let count = ends.entry(id).or_default();
                *count += 1;
                assert_eq!(*count, 1, "ended twice: {}", event.line);
            }
            "command_rejected" | "inject_failed" => panic!("{}", event.line),
            _ => {}
        }
    }
    assert_eq!(acks.len(), CLIENTS * EACH);
    assert_eq!(accepted, ran, "the order of turns is not the order of acceptance");
    // Commands of one client for one node ran in the order in which it sent them.
    for ids in ran.values() {
        let mut last: HashMap<String, usize> = HashMap::new();
        for id in ids {
            let (client, index) = answers[id].split_once(':').unwrap();
            let index: usize = index.parse().unwrap();
            let before = last.insert(client.to_owned(), index);
            assert!(before.is_none_or(|before| before < index), "client {client}: {index} after {before:?}");
        }
    }
    drop(clients.join_all().await);
    stop.cancel();
    let rejected = garbage.await.unwrap();
    assert!(rejected > 100, "{rejected}");
    let cut = deaf.next_of("cut_off").await;
    assert!(cut.data["reason"].as_str().unwrap().contains("behind"), "{}", cut.line);
    done.cancel();
    listening.await.unwrap();
    rig.close().await;
}

async fn connect(address: &str) -> TestClient {
    TestClient { client: Client::connect_to(address).await.unwrap() }
}

/// Sends invalid lines until stopped; returns the number of rejections.
async fn talk_nonsense(path: PathBuf, stop: CancellationToken) -> usize {
    let (mut reader, mut writer) = switchboard_sys::socket::connect(&path).await.unwrap().into_split();
    let writing = async {
        let mut random = fastrand::Rng::with_seed(7);
        while !stop.is_cancelled() {
            let length = random.usize(1..200);
            let mut line: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            line.push(b'\n');
            if writer.write_all(&line).await.is_err() {
                return;
            }
        }
    };
    let reading = async {
        let (mut rejected, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            tokio::select! {
                read = reader.read(&mut buffer) => match read {
                    Ok(read @ 1..) => {
                        rejected += buffer[..read].windows(16).filter(|part| part == b"command_rejected").count();
                    }
                    _ => return rejected,
                },
                () = stop.cancelled() => return rejected,
            }
        }
    };
    // The router stops reading from a client that does not read, so the writer must not block on a full buffer.
    let writing = stop.run_until_cancelled(writing);
    tokio::join!(writing, reading).1
}
