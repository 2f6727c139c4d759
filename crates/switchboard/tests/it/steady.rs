//! Memory and clock of a `serve` that runs for long.

use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use test_support::fault::Shim;
use test_support::mcp::Client;
use test_support::process::{peak_memory, resident_memory};
use test_support::{Running, Sandbox, TestServer, files, poll, tools};

use crate::{BINARY, workspace};

/// `bench growth` measures the same with a million messages.
#[test]
fn storm_serve_memory_is_bounded_with_clients() {
    const CLIENTS: usize = 200;
    const ROUNDS: usize = 2;
    const MOST: u64 = 256 << 20;
    /// Far less than the messages and answers of a round.
    const GROWTH: u64 = 24 << 20;
    let sandbox = Sandbox::with_agents(BINARY, &[]);
    let mut served = TestServer::start(&sandbox);
    let process = served.running.id();
    let mut clients: Vec<(String, Client)> = (0..CLIENTS)
        .map(|number| {
            let name = format!("client{number:03}");
            let client = Client::streamable(&served, None).registered(&name);
            (name, client)
        })
        .collect();
    let mut held = Vec::new();
    for half in 0..2 {
        for round in 0..ROUNDS {
            for (name, client) in &mut clients {
                let text = format!("{half} {round} {}", "x".repeat(8_000));
                let arguments = json!({ "recipient": name, "action": "status_update", "payload": text });
                let id = client.ok("send_message", arguments)["id"].clone();
                client.ok("wait_for_message", json!({ "timeout": 60 }));
                client.ok("ack_message", json!({ "ids": [id] }));
            }
        }
        held.extend(resident_memory(process));
    }
    if let (Some(peak), [first, second]) = (peak_memory(process), &held[..]) {
        println!("{} MiB, then {} MiB, at most {} MiB", first >> 20, second >> 20, peak >> 20);
        assert!(peak < MOST && *second < first + GROWTH, "{first}, {second}, {peak}");
    }
    drop(clients);
    assert_eq!(served.running.terminate().code(), Some(0), "{}", served.running.errors());
}

/// The wall clock is set a day ahead and back, and the machine sleeps. No wait ends early, no message waits or changes
/// its position.
#[test]
fn clock_steps_and_suspend_delay_nothing() {
    let test = "clock_steps_and_suspend_delay_nothing";
    let shim = match Shim::get(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(shim) => shim,
        Err(reason) => return tools::skip(test, &reason),
    };
    let sandbox = workspace();
    let ahead = sandbox.path().join("ahead");
    let mut command = sandbox.command(["serve", "--port", "0", "--json"]);
    let running = Running::start(shim.step_clock_while(&mut command, 1, &ahead));
    let mut served = TestServer::of(&sandbox, running);
    let mut reader = Client::streamable(&served, None).registered("codex");
    let mut writer = Client::streamable(&served, None).registered("claude");
    let mut expected = Vec::new();
    for step in 0..4 {
        let waiting = reader.start_call("wait_for_message", json!({ "timeout": 600 }));
        reader.request("ping", json!({})).unwrap();
        if step % 2 == 0 {
            files::put(&ahead, "");
        } else {
            std::fs::remove_file(&ahead).unwrap();
        }
        let text = format!("after step {step}");
        writer
            .ok("send_message", json!({ "recipient": "codex", "action": "status_update", "payload": text }));
        let waited = reader.tool_result(waiting).ok();
        assert_eq!(waited["messages"][0]["payload"], text.as_str(), "{waited}");
        expected.push(text);
    }
    served.running.signal(Signal::STOP);
    let asleep = "msg_1763000000000_asleep";
    sandbox.drop_file(asleep, "claude", "codex", "while it slept");
    served.running.signal(Signal::CONT);
    let receipt = sandbox.file(&format!("outbox/claude/{asleep}.receipt.json"));
    poll::until("the dropped file to be ingested", || receipt.exists().then_some(()));
    expected.push("while it slept".to_owned());
    let inbox = sandbox.json(["inbox", "codex", "--from", "codex"]);
    let bodies: Vec<&str> = inbox.iter().map(|line| line["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, expected);
    assert_eq!(served.running.terminate().code(), Some(0), "{}", served.running.errors());
    sandbox.ok(["audit", "verify"]);
}
