//! A terminated process delivers what it accepted, and the next command delivers what a killed process left
//! undelivered.

use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Running, Sandbox, files, poll};

use crate::BINARY;

/// Calls of one session. A session answers 256 at once.
const MESSAGES: usize = 240;

fn session(sandbox: &Sandbox, name: &str, more: &[&str]) -> Client {
    let args = ["mcp"].iter().chain(more).copied();
    Client::stdio(Running::start_with_stdin(&mut sandbox.session(args))).registered(name)
}

/// Sends without waiting for answers; returns the ids of the calls.
fn start_sends(client: &mut Client) -> Vec<i64> {
    let send = |number: usize| {
        let text = format!("{number} {}", "x".repeat(500));
        json!({ "recipient": "codex", "action": "status_update", "payload": text })
    };
    (0..MESSAGES).map(|number| client.start_call("send_message", send(number))).collect()
}

fn delivered(sandbox: &Sandbox) -> usize {
    files::message_files(&sandbox.file("inbox").join("codex")).len()
}

/// Returns the messages in the journal for `codex`, without notices of the hub.
fn accepted(sandbox: &Sandbox) -> Vec<Value> {
    let mut journal = sandbox.json(["tail", "-n", "1000000"]);
    journal.retain(|message| message["from"] != "switchboard");
    journal
}

/// Checks that every accepted message was delivered when the last process ended.
fn assert_all_delivered(sandbox: &Sandbox, at_least: usize) {
    let files = delivered(sandbox);
    let accepted = accepted(sandbox);
    let states: Vec<_> = accepted.iter().map(|message| message["state"].as_str().unwrap()).collect();
    assert!(states.iter().all(|state| *state == "delivered"), "{states:?}");
    assert_eq!(files, accepted.len());
    assert!(accepted.len() >= at_least, "{} of {at_least}", accepted.len());
    let doctor = sandbox.run(["doctor"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
}

#[test]
fn session_without_stdin_delivers_what_it_accepted() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut client = session(&sandbox, "claude", &["--alone"]);
    let calls = start_sends(&mut client);
    let last = *calls.last().unwrap();
    client.answer(last).unwrap();
    client.process().close_stdin();
    assert!(client.process().wait().success());
    assert_all_delivered(&sandbox, MESSAGES);
}

#[test]
fn terminated_session_delivers_what_it_accepted() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut client = session(&sandbox, "claude", &["--alone"]);
    let calls = start_sends(&mut client);
    client.answer(calls[MESSAGES / 2]).unwrap();
    client.process().signal(Signal::TERM);
    assert!(client.process().wait().success());
    assert_all_delivered(&sandbox, MESSAGES / 2);
}

#[test]
fn storm_terminated_serve_delivers_what_it_accepted() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut serve = sandbox.serve();
    let mut clients: Vec<_> = ["one", "two", "three", "four"].map(|name| session(&sandbox, name, &[])).into();
    let calls: Vec<_> = clients.iter_mut().map(start_sends).collect();
    clients[0].answer(calls[0][MESSAGES / 2]).unwrap();
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    for (client, calls) in clients.iter_mut().zip(&calls) {
        // Sessions continue standalone with the remaining calls.
        client.answer(*calls.last().unwrap()).unwrap();
        client.process().close_stdin();
        assert!(client.process().wait().success());
    }
    assert_all_delivered(&sandbox, 4 * MESSAGES);
}

#[test]
fn storm_next_command_delivers_what_a_killed_session_left() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut left_over = 0;
    // The kill may come after the last delivery, hence several rounds.
    for round in 1..=10 {
        let name = format!("claude{round}");
        let mut client = session(&sandbox, &name, &["--alone"]);
        let calls = start_sends(&mut client);
        client.answer(calls[MESSAGES / 2]).unwrap();
        client.process().kill();
        let before = delivered(&sandbox);
        poll::until("a command that delivers the rest", || {
            // Any command delivers, also one that only reads.
            sandbox.ok(["who"]);
            let accepted = accepted(&sandbox);
            accepted.iter().all(|message| message["state"] == "delivered").then_some(())
        });
        left_over += delivered(&sandbox) - before;
        if left_over > 0 {
            break;
        }
    }
    assert!(left_over > 0, "every session had delivered all before it was killed");
    assert_all_delivered(&sandbox, MESSAGES / 2);
}
