//! What is counted and traced on the way.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use serde_json::json;
use test_support::http::Request;
use test_support::mcp::Client;
use test_support::{Running, Served};

use super::{add, call, client, fixture, sandbox};

#[test]
fn suites_calls_are_counted_for_prometheus() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    let served = Served::start(&sandbox);
    let mut client = Client::streamable(&served, None);
    for _ in 0..3 {
        client
            .ask("tools/call", json!({ "name": "echo_suite", "arguments": call("echo", json!({})) }))
            .unwrap();
    }
    let asked = served.knows(Request::new("GET", "/metrics"), None).send(served.port).unwrap();
    let text = asked.text().unwrap();
    assert!(text.contains("echo") && text.lines().any(|line| line.ends_with(" 3")), "{text}");
    let stranger = Request::new("GET", "/metrics").send(served.port).unwrap();
    assert_eq!(stranger.status, 401, "counts are for those who know the token");
}

#[test]
fn suites_spans_go_to_the_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, spans) = mpsc::sync_channel(16);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = Vec::new();
            let mut piece = vec![0; 65536];
            loop {
                let read = stream.read(&mut piece).unwrap_or(0);
                text.extend_from_slice(&piece[..read]);
                if read == 0 || whole(&text) {
                    break;
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = heard.send(String::from_utf8_lossy(&text).into_owned());
        }
    });
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    let mut command = sandbox.session(["mcp"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"));
    let mut client = Client::stdio(Running::start_listening(&mut command));
    client.ask("tools/call", json!({ "name": "echo_suite", "arguments": call("echo", json!({})) })).unwrap();
    client.process().say_no_more();
    assert!(client.process().wait().success());
    let said = spans.recv_timeout(test_support::poll::PATIENCE).expect("spans are sent before the end");
    assert!(
        said.starts_with("POST /v1/traces") && said.contains("switchboard") && said.contains("echo"),
        "{said}"
    );
    for span in ["suite_call", "child_start", "child_request"] {
        assert!(said.contains(span), "{span}: {said}");
    }
}

/// Whether a request has come in as a whole.
fn whole(text: &[u8]) -> bool {
    let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let headers = String::from_utf8_lossy(&text[..head]).to_lowercase();
    let length =
        headers.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    length.is_none_or(|length| text.len() >= head + 4 + length)
}

#[test]
fn suites_changes_are_taken_up_while_a_client_listens() {
    let sandbox = sandbox();
    add(&sandbox, "one", &fixture("echo.py"));
    let mut client = client(&sandbox);
    assert!(client.tool_names().contains(&"one_suite".to_owned()));
    add(&sandbox, "two", &fixture("echo.py"));
    client.told("notifications/tools/list_changed");
    let names = client.tool_names();
    let suites: Vec<&String> = names.iter().filter(|name| name.ends_with("_suite")).collect();
    assert_eq!(suites, ["one_suite", "two_suite"]);
}
