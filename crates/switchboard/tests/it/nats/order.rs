//! A receiving hub is killed at random moments during traffic: each sender's messages stay in order.

use std::collections::BTreeMap;

use serde_json::json;
use switchboard_core::MessageId;
use switchboard_hub::{Hub, HubConfig};
use test_support::nats::Release;
use test_support::poll;

use super::hub::{Linked, wait_for_all, wait_for_receipts, write};
use super::{runtime, server};

/// Messages of each sender to one agent, and half as many to everyone.
const DIRECT: usize = 500;

#[test]
fn crash_killed_receiver_keeps_order_over_the_oldest_server() {
    check_order("crash_killed_receiver_keeps_order_over_the_oldest_server", Release::Oldest);
}

#[test]
fn crash_killed_receiver_keeps_order_over_the_newest_server() {
    check_order("crash_killed_receiver_keeps_order_over_the_newest_server", Release::Newest);
}

fn check_order(test: &str, release: Release) {
    let Some(server) = server(test, release, "") else { return };
    let seed = std::env::var("SWITCHBOARD_CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SWITCHBOARD_CRASH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let lab = Linked::start("lab", &server.url(), &["codex", "claude"], json!({}));
    let attic = Linked::start("attic", &server.url(), &["gemini"], json!({}));
    let mut office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    for hub in [&lab, &attic] {
        hub.wait_for("qc-1@office");
    }
    let total = 3 * (DIRECT + DIRECT / 2);
    // Senders have their own thread: they continue while the hub restarts.
    let folders = [&lab, &attic].map(|hub| HubConfig::new(hub.sandbox.file("")));
    let senders = std::thread::spawn(|| {
        runtime().block_on(async {
            let [here, third] = folders.map(Hub::open);
            let (here, third) = (here.await.unwrap(), third.await.unwrap());
            let (codex, claude, gemini) = tokio::join!(
                send_alternating(&here, "codex", 0),
                send_alternating(&here, "claude", 1),
                send_alternating(&third, "gemini", 2)
            );
            let of_lab = [codex, claude].concat().into_iter().map(|id| (0, id));
            of_lab.chain(gemini.into_iter().map(|id| (1, id))).collect::<Vec<(usize, MessageId)>>()
        })
    });
    let mut arrived = 0;
    while arrived < total * 3 / 4 {
        arrived += random.usize(1..total / 8);
        runtime().block_on(async { wait_for_all(&office.hub().await, arrived.min(total)).await });
        office.kill_and_restart();
    }
    let ids = senders.join().unwrap();
    assert_eq!(ids.len(), total);
    runtime().block_on(async {
        let there = office.hub().await;
        let counts = wait_for_all(&there, total).await;
        assert!(counts.values().all(|count| *count == 1), "each once, seed {seed}: {counts:?}");
        for (sender, numbers) in by_sender(&there).await {
            assert!(numbers.is_sorted(), "{sender} out of order, seed {seed}: {numbers:?}");
            assert_eq!(numbers.len(), total / 3, "{sender}");
        }
        for (hub, number) in [(lab.hub().await, 0), (attic.hub().await, 1)] {
            let of_hub: Vec<_> = ids.iter().filter(|(of, _)| *of == number).map(|(_, id)| *id).collect();
            wait_for_receipts(&hub, &of_hub).await;
        }
    });
    let mailbox = office.sandbox.file("inbox/qc-1");
    poll::until(&format!("{total} files in the mailbox; {}", office.errors()), || {
        let files = std::fs::read_dir(&mailbox).ok()?;
        let messages = files
            .filter_map(Result::ok)
            .filter(|file| file.file_name().to_str().is_some_and(|name| name.starts_with("msg_")));
        (messages.count() == total).then_some(())
    });
    let mail = office.sandbox.json(["inbox", "qc-1", "--limit", "5000"]);
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    for message in &mail {
        let number: usize =
            message["body"].as_str().unwrap().strip_prefix("number ").unwrap().parse().unwrap();
        let before = last.insert(message["from"].to_string(), number);
        assert!(before.is_none_or(|before| before < number), "{before:?} then {number}, seed {seed}");
    }
    assert_eq!(mail.len(), total);
}

/// Sends messages of one sender, alternately to one agent and to everyone, with numbers unique to this sender.
async fn send_alternating(hub: &Hub, from: &str, number: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    let mut next = number * 1_000_000;
    for _ in 0..DIRECT / 2 {
        ids.extend(write(hub, from, "qc-1", next..next + 2).await);
        ids.extend(write(hub, from, "all", next + 2..next + 3).await);
        next += 3;
    }
    ids
}

/// Returns the numbers of messages in a journal, in its order, by sender.
async fn by_sender(hub: &Hub) -> BTreeMap<String, Vec<usize>> {
    let (mut found, mut after): (BTreeMap<String, Vec<usize>>, _) = (BTreeMap::new(), 0);
    loop {
        let page = hub.journal().entries(after, 1000).await.unwrap();
        after = page.items.last().map_or(after, |stored| stored.seq);
        for stored in page.items {
            if let Some(number) = stored.message.body.strip_prefix("number ") {
                found.entry(stored.message.from.to_string()).or_default().push(number.parse().unwrap());
            }
        }
        if !page.more {
            return found;
        }
    }
}
