//! A connection that breaks during a send: the client retries, and there is one message.

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::{Value, json};
use test_support::http::Request;
use test_support::mcp::{Client, REVISION};
use test_support::{Sandbox, TestServer};

use super::{stdio, task};
use crate::workspace;

fn keyed(number: usize) -> Value {
    let mut arguments = task("codex", &format!("message {number}"));
    arguments["idempotencyKey"] = format!("key {number}").into();
    arguments
}

fn call(number: usize) -> Value {
    let params = json!({ "name": "send_message", "arguments": keyed(number) });
    json!({ "jsonrpc": "2.0", "id": 1000 + number, "method": "tools/call", "params": params })
}

/// Retries every send twice; each key must produce one message, whatever the first attempt did.
fn retry_all(sandbox: &Sandbox, client: &mut Client, count: usize) {
    let mut ids = BTreeSet::new();
    for number in 0..count {
        let first = client.ok("send_message", keyed(number));
        let second = client.ok("send_message", keyed(number));
        assert_eq!((&first["id"], &second["duplicate"]), (&second["id"], &json!(true)));
        ids.insert(first["id"].as_str().unwrap().to_owned());
    }
    let mail = sandbox.json(["inbox", "codex", "--limit", "1000"]);
    let found: Vec<&str> = mail.iter().map(|message| message["native_id"].as_str().unwrap()).collect();
    assert_eq!(found.len(), count, "{mail:?}");
    assert_eq!(found.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), ids);
    // The same key with another text is a mistake, and the second text is not sent.
    let mut other = keyed(0);
    other["payload"] = "something else".into();
    let refusal = client.refused("send_message", other);
    assert!(refusal.contains("idempotencyKey"), "{refusal}");
}

/// Breaks off after this number of tenths of a request's body.
const BREAKS: [usize; 5] = [0, 3, 9, 10, 10];

fn break_off(served: &TestServer, request: &Request, body: &Value, tenths: usize) {
    let body = body.to_string();
    let end = body.len() * tenths / 10;
    let mut connection = request.send_head(served.port).unwrap();
    connection.write_all(&body.as_bytes()[..end]).unwrap();
}

#[test]
fn retry_after_broken_connection_is_deduplicated() {
    for transport in ["streamable", "sse"] {
        let sandbox = workspace();
        let served = TestServer::start(&sandbox);
        let mut client = match transport {
            "sse" => Client::sse(&served, Some("claude")),
            _ => Client::streamable(&served, Some("claude")),
        };
        let count = BREAKS.len() * 4;
        for number in 0..count {
            let body = call(number);
            let path = match transport {
                "sse" => format!("/messages?sessionId={}", client.session()),
                _ => "/mcp".to_owned(),
            };
            let request = served
                .authorize(Request::post(&path, &body), Some("claude"))
                .header("Mcp-Session-Id", client.session())
                .header("MCP-Protocol-Version", REVISION);
            break_off(&served, &request, &body, BREAKS[number % BREAKS.len()]);
        }
        retry_all(&sandbox, &mut client, count);
    }
}

#[test]
fn retry_after_killed_process_is_deduplicated() {
    let sandbox = workspace();
    let count = 10;
    for number in 0..count {
        let mut client = stdio(&sandbox, Some("claude"));
        client.send(&call(number));
        // Every other server answers before it is killed.
        if number % 2 == 1 {
            client.answer(1000 + i64::try_from(number).unwrap()).unwrap();
        }
        client.process().kill();
    }
    retry_all(&sandbox, &mut stdio(&sandbox, Some("claude")), count);
}

#[test]
fn empty_text_counts_as_absent() {
    let sandbox = workspace();
    let mut claude = stdio(&sandbox, Some("claude"));
    for text in ["first", "second"] {
        let mut arguments = task("codex", text);
        for key in ["idempotencyKey", "replyTo", "sender"] {
            arguments[key] = "".into();
        }
        assert_eq!(claude.ok("send_message", arguments)["duplicate"], false, "{text}");
    }
    let mut codex = stdio(&sandbox, Some("codex"));
    let mail = codex.ok("check_inbox", json!({ "since": "", "cursor": "", "agent": "", "id": "" }));
    assert_eq!(super::payloads(&mail), ["first", "second"]);
    assert_eq!(mail["messages"][1].get("replyTo"), None);
}

#[test]
fn json_rpc_id_is_no_idempotency_key() {
    let sandbox = workspace();
    let _served = TestServer::start(&sandbox);
    // Answered by `serve`, which can deduplicate calls if it ends during one.
    let mut claude = stdio(&sandbox, Some("claude"));
    for _ in 0..2 {
        let params = json!({ "name": "send_message", "arguments": task("codex", "the same text") });
        claude.send(&json!({ "jsonrpc": "2.0", "id": 7777, "method": "tools/call", "params": params }));
        assert_eq!(claude.tool_result(7777).ok()["duplicate"], false);
    }
}
