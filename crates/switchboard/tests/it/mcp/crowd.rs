//! Many clients at once: no message is lost, and no answer reaches the wrong client.

use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Sandbox, TestServer};

use super::{payloads, stdio, task};
use crate::BINARY;

const CLIENTS: usize = 64;
/// Each is four calls.
const ROUNDS: usize = 50;

/// Opens a session over alternating transports; half of them name the agent in a header, half register it.
fn open(served: &TestServer, number: usize) -> (String, Client) {
    let name = format!("client{number:02}");
    let header = (number % 4 < 2).then_some(name.as_str());
    let client = if number.is_multiple_of(2) {
        Client::streamable(served, header)
    } else {
        Client::sse(served, header)
    };
    let client = client.registered(&name);
    (name, client)
}

/// Writes to itself in rounds, and must receive exactly that.
fn talk_to_oneself(name: &str, client: &mut Client) {
    for round in 0..ROUNDS {
        let marker = format!("{name} round {round}");
        let sent = client.ok("send_message", task(name, &marker));
        let id = &sent["id"];
        let waited = client.ok("wait_for_message", json!({ "timeout": 60 }));
        assert_eq!((payloads(&waited), &waited["messages"][0]["id"]), (vec![marker.as_str()], id));
        let done = client.ok("ack_message", json!({ "ids": [id] }));
        assert_eq!(done["acknowledged"], 1);
        let receipt = client.ok("get_receipt", json!({ "id": id }));
        assert_eq!((&receipt["id"], &receipt["deliveries"][0]["state"]), (id, &json!("acknowledged")));
    }
    assert_eq!(client.ok("check_inbox", json!({}))["messages"], json!([]), "{name}");
    let archive = client.ok("check_inbox", json!({ "box": "archive", "limit": 100 }));
    let expected: Vec<String> = (0..ROUNDS).map(|round| format!("{name} round {round}")).collect();
    assert_eq!(payloads(&archive), expected);
}

#[test]
fn mcp_crowd_of_sixty_four_clients() {
    let sandbox = Sandbox::with_agents(BINARY, &[]);
    let mut served = TestServer::start(&sandbox);
    let began = Instant::now();
    thread::scope(|scope| {
        let running: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (name, mut client) = open(&served, number);
                scope.spawn(move || talk_to_oneself(&name, &mut client))
            })
            .collect();
        for client in running {
            client.join().unwrap();
        }
    });
    let calls = CLIENTS * ROUNDS * 4;
    println!("{calls} calls of {CLIENTS} clients in {:.1?}", began.elapsed());
    assert_eq!(served.running.terminate().code(), Some(0), "{}", served.running.errors());
    let journal: Vec<Value> = sandbox.json(["tail", "--limit", "100000"]);
    assert_eq!(journal.len(), CLIENTS * ROUNDS);
}

#[test]
fn two_clients_use_two_transports() {
    let sandbox = Sandbox::with_agents(BINARY, &[]);
    let served = TestServer::start(&sandbox);
    let mut reader = Client::sse(&served, None).registered("reader");
    let mut sender = stdio(&sandbox, None).registered("sender");
    for round in 0..10 {
        let waiting = reader.start_call("wait_for_message", json!({ "timeout": 60 }));
        let sent = sender.ok("send_message", task("reader", &format!("round {round}")));
        let waited = reader.tool_result(waiting).ok();
        assert_eq!(waited["messages"][0]["id"], sent["id"]);
        let answer = json!({
            "recipient": "sender", "action": "submit_result", "payload": format!("answer {round}"),
            "replyTo": sent["id"],
        });
        let waiting = sender.start_call("wait_for_message", json!({ "timeout": 60 }));
        reader.ok("send_message", answer);
        let answered = sender.tool_result(waiting).ok();
        assert_eq!(answered["messages"][0]["replyTo"], sent["id"]);
        sender.ok("ack_message", json!({ "ids": [answered["messages"][0]["id"]] }));
        reader.ok("ack_message", json!({ "ids": [sent["id"]] }));
    }
}
