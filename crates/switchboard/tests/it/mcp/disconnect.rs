//! Requests whose client has disconnected or waits for long.

use std::net::Shutdown;

use serde_json::{Value, json};
use test_support::TestServer;
use test_support::http::Request;
use test_support::mcp::{Client, REVISION};

use super::payloads;
use crate::workspace;

/// Builds a call of `wait_for_message` with its own id.
fn wait(seconds: u32, meta: Value) -> Value {
    let params = json!({ "name": "wait_for_message", "arguments": { "timeout": seconds }, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": params })
}

/// Builds a call of `wait_for_message` in protocol revision 2026-07-28.
fn stateless_wait(served: &TestServer, agent: &str) -> Request {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    served
        .authorize(Request::post("/mcp", &wait(600, meta)), Some(agent))
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", "tools/call")
        .header("Mcp-Name", "wait_for_message")
}

#[test]
fn wait_of_closed_client_consumes_no_mail() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let mut alice = Client::streamable(&served, None).registered("alice");
    let in_session = |request: Request| {
        let request = served.authorize(request, None).header("MCP-Protocol-Version", REVISION);
        request.header("Mcp-Session-Id", alice.session())
    };
    let response = in_session(Request::post("/mcp", &wait(600, json!({})))).send(served.port).unwrap();
    let connection = response.connection().unwrap();
    let first = response.events().next().unwrap();
    connection.shutdown(Shutdown::Both).unwrap();
    // The client reconnects for the answer. Once it has that, the server has detected the disconnect.
    let back = Request::new("GET", "/mcp").header("Accept", "text/event-stream");
    let back = in_session(back).header("Last-Event-ID", &first.id).send(served.port).unwrap();
    let answer = back.events().find(|event| event.data.contains("\"id\":900"));
    let answer = answer.unwrap_or_else(|| panic!("after {first:?}: {}", served.running.errors())).data;
    assert!(answer.contains("The connection was closed"), "{answer}");

    let id = sandbox.send("claude", "alice", "for whoever listens");
    let receipt = sandbox.json(["--from", "claude", "receipt", &id]);
    assert_eq!(receipt[0]["deliveries"][0]["state"], "delivered", "{receipt:?}");
    let mail = alice.ok("wait_for_message", json!({ "timeout": 60 }));
    assert_eq!(payloads(&mail), ["for whoever listens"]);
}

#[test]
fn sessionless_wait_sends_headers_at_once() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    // The response headers arrive before there is an answer.
    let response = stateless_wait(&served, "codex").send(served.port).unwrap();
    assert_eq!((response.status, response.is_stream()), (200, true));
    sandbox.send("claude", "codex", "at last");
    let answer = response.events().find(|event| event.data.contains("\"id\":900")).unwrap().data;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(payloads(&answer["result"]["structuredContent"]), ["at last"]);
}

#[test]
fn health_answers_while_tools_are_busy() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let waits: Vec<_> = (0..8).map(|_| stateless_wait(&served, "codex").send(served.port).unwrap()).collect();
    let response = Request::new("GET", "/health").send(served.port).unwrap();
    assert_eq!(response.status, 200);
    let health: Value = serde_json::from_str(&response.text().unwrap()).unwrap();
    assert_eq!(health["status"], "ok");
    drop(waits);
}
