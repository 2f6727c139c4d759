//! Metrics and traces of calls.

use serde_json::json;
use test_support::http::Request;
use test_support::mcp::Client;
use test_support::{Running, TestServer};

use super::{add, call, client, fixture, sandbox};

#[test]
fn calls_are_counted_for_prometheus() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    let served = TestServer::start(&sandbox);
    let mut client = Client::streamable(&served, None);
    for _ in 0..3 {
        client
            .request("tools/call", json!({ "name": "echo_suite", "arguments": call("echo", json!({})) }))
            .unwrap();
    }
    let answer = served.authorize(Request::new("GET", "/metrics"), None).send(served.port).unwrap();
    let text = answer.text().unwrap();
    assert!(text.contains("echo") && text.lines().any(|line| line.ends_with(" 3")), "{text}");
    let stranger = Request::new("GET", "/metrics").send(served.port).unwrap();
    assert_eq!(stranger.status, 401, "counts are for those who know the token");
}

#[test]
fn durations_are_logged() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    let mut command = sandbox.session(["mcp", "-v"]);
    let mut client = Client::stdio(Running::start_with_stdin(&mut command));
    client
        .request("tools/call", json!({ "name": "echo_suite", "arguments": call("echo", json!({})) }))
        .unwrap();
    client.process().close_stdin();
    assert!(client.process().wait().success());
    let log = client.process().errors();
    for span in ["suite_call", "child_start", "child_request"] {
        let is_timed = |line: &str| line.contains(span) && line.contains("time.busy");
        assert!(log.lines().any(is_timed), "{span}: {log}");
    }
}

#[test]
fn changes_apply_while_a_client_listens() {
    let sandbox = sandbox();
    add(&sandbox, "one", &fixture("echo.py"));
    let mut client = client(&sandbox);
    assert!(client.tool_names().contains(&"one_suite".to_owned()));
    add(&sandbox, "two", &fixture("echo.py"));
    client.notification("notifications/tools/list_changed");
    let names = client.tool_names();
    let suites: Vec<&String> = names.iter().filter(|name| name.ends_with("_suite")).collect();
    assert_eq!(suites, ["one_suite", "two_suite"]);
}
