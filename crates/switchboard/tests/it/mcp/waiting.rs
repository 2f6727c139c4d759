//! `wait_for_message`: it wakes at once, reports progress meanwhile, and can be cancelled.

use std::time::{Duration, Instant};

use serde_json::json;
use test_support::mcp::Client;
use test_support::{Sandbox, TestServer};

use super::{connect_each, payloads, stdio, task};
use crate::workspace;

/// Below the 15 s of the periodic poll of a mailbox, and otherwise as much as a busy machine may need.
const AT_ONCE: Duration = Duration::from_secs(12);

/// Starts to wait. Requests of a session are read in order, so once the second is answered the first one has started;
/// over HTTP it may still be in flight, and then finds the mail that has arrived.
fn start_wait(client: &mut Client) -> i64 {
    let waiting = client.start_call("wait_for_message", json!({ "timeout": 600 }));
    client.request("ping", json!({})).unwrap();
    waiting
}

fn wakes(client: &mut Client, waiting: i64, expected: &str) {
    let began = Instant::now();
    let data = client.tool_result(waiting).ok();
    assert!(began.elapsed() < AT_ONCE, "{expected}: after {:?}", began.elapsed());
    assert_eq!(payloads(&data), [expected]);
    assert_eq!(client.call("get_team_roster", json!({})).data.get("unread"), None, "it has been seen");
}

/// Checks every door by which mail can reach a waiter in a session.
fn check(sandbox: &Sandbox, served: &TestServer, name: &str, client: Client) {
    let mut client = client.registered(name);
    let waiting = start_wait(&mut client);
    sandbox.send("claude", name, "by the command line");
    wakes(&mut client, waiting, "by the command line");

    let waiting = start_wait(&mut client);
    sandbox.drop_file(&format!("msg_1763000000000_{name}"), "claude", name, "by a file");
    wakes(&mut client, waiting, "by a file");

    for (way, mut other) in [
        ("by pipes", stdio(sandbox, Some("claude"))),
        ("by streamable HTTP", Client::streamable(served, Some("claude"))),
        ("by SSE", Client::sse(served, Some("claude"))),
    ] {
        let waiting = start_wait(&mut client);
        other.ok("send_message", task(name, way));
        wakes(&mut client, waiting, way);
    }
    // Existing mail does not start a wait.
    sandbox.send("claude", name, "before it waited");
    let waiting = client.start_call("wait_for_message", json!({ "timeout": 600 }));
    wakes(&mut client, waiting, "before it waited");
}

#[test]
fn wait_wakes_for_mail_of_any_door() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    for (name, client) in connect_each(&sandbox, &served) {
        check(&sandbox, &served, name, client);
    }
}

#[test]
fn pipe_wait_needs_no_server() {
    let sandbox = workspace();
    let mut client = stdio(&sandbox, Some("codex"));
    let waiting = start_wait(&mut client);
    sandbox.drop_file("msg_1763000000000_alone", "claude", "codex", "nobody serves");
    wakes(&mut client, waiting, "nobody serves");
}

#[test]
fn wait_reports_progress_and_can_be_cancelled() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let mut waiting: Vec<(&str, Client, i64)> = connect_each(&sandbox, &served)
        .into_iter()
        .map(|(name, client)| {
            let mut client = client.registered(name);
            let id = start_wait(&mut client);
            (name, client, id)
        })
        .collect();
    for (name, client, id) in &mut waiting {
        let progress = client.notification("notifications/progress");
        assert_eq!(progress["progressToken"], *id, "{name}");
        assert_eq!((progress["progress"].as_f64(), progress["total"].as_f64()), (Some(15.0), Some(600.0)));
        let cancelled = json!({ "requestId": *id, "reason": "enough" });
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }));
        // The session continues, and the cancelled call consumed no later mail.
        sandbox.send("claude", name, "after it was called off");
        let mail = client.ok("wait_for_message", json!({ "timeout": 60 }));
        assert_eq!(payloads(&mail), ["after it was called off"], "{name}");
    }
}

#[test]
fn wait_ends_at_its_timeout() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    for (name, client) in connect_each(&sandbox, &served) {
        let mut client = client.registered(name);
        let began = Instant::now();
        let data = client.ok("wait_for_message", json!({ "timeout": 0.2 }));
        assert_eq!((&data["timedOut"], &data["messages"]), (&json!(true), &json!([])), "{name}");
        assert!(began.elapsed() >= Duration::from_millis(200));
    }
}

#[test]
fn every_answer_carries_unread_mail() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    for (name, client) in connect_each(&sandbox, &served) {
        let mut client = client.registered(name);
        sandbox.send("claude", name, "first");
        sandbox.send("claude", name, "second");
        let answer = client.call("get_team_roster", json!({}));
        assert_eq!(answer.data["unread"], 2, "{name}");
        assert!(answer.text.ends_with("You have 2 unread messages: call check_inbox."), "{}", answer.text);
        // Also where the call itself fails.
        assert!(client.refused("send_message", json!({})).contains("2 unread"), "{name}");
        let answer = client.call("check_inbox", json!({}));
        assert_eq!(answer.data.get("unread"), None, "{name}");
    }
}
