//! A mailbox that is far larger than a model's context.

use std::collections::HashSet;

use door_workspace::to_native;
use serde_json::{Value, json};
use test_support::mcp::ToolResult;
use test_support::{Sandbox, TestServer};

use super::stdio;
use crate::BINARY;
use crate::child::{Library, message_to_codex};

/// Clients truncate a larger result, at about 25,000 tokens.
const MOST_BYTES: usize = 100_000;

/// Accepts messages for `codex` in batches; returns their native ids in journal order.
async fn fill(sandbox: &Sandbox, bodies: Vec<String>) -> Vec<String> {
    let library = Library::open(sandbox.path()).await;
    let mut ids = Vec::new();
    for part in bodies.chunks(500) {
        let mut sends = tokio::task::JoinSet::new();
        for body in part {
            let (workspace, message) = (library.workspace.clone(), message_to_codex("claude", body.clone()));
            sends.spawn(async move { workspace.send(message).await.unwrap().id });
        }
        ids.extend(sends.join_all().await);
    }
    for id in &ids {
        library.workspace.hub().deliveries().wait_until_settled(*id).await.unwrap();
    }
    library.close().await;
    ids.sort();
    ids.into_iter().map(to_native).collect()
}

fn check_size(answer: &ToolResult) {
    assert!(answer.text.len() < MOST_BYTES, "{} bytes of text", answer.text.len());
    // The structured content, which a client may show instead, is as large.
    let data = answer.data.to_string().len();
    assert!(data < MOST_BYTES, "{data} bytes of data");
}

fn ids(data: &Value) -> Vec<String> {
    let messages = data["messages"].as_array().unwrap();
    messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn mcp_paging_reaches_each_message_once() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex", "claude"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bodies = (0..10_000).map(|number| format!("message {number} {}", "w".repeat(600))).collect();
    let sent: HashSet<String> = runtime.block_on(fill(&sandbox, bodies)).into_iter().collect();
    assert_eq!(sent.len(), 10_000);
    let mut client = stdio(&sandbox, Some("codex"));
    let (mut seen, mut arguments) = (HashSet::new(), json!({ "limit": 1000 }));
    loop {
        let answer = client.call("check_inbox", arguments.clone());
        check_size(&answer);
        let page = answer.ok();
        for id in ids(&page) {
            assert!(seen.insert(id.clone()), "{id} twice");
        }
        match page.get("cursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => break,
        }
    }
    assert_eq!(seen, sent);
    // The resource has no cursor; it says that there is more.
    let read = client.request("resources/read", json!({ "uri": "switchboard://inbox/codex" })).unwrap();
    let text = read["contents"][0]["text"].as_str().unwrap();
    assert!(text.len() < MOST_BYTES, "{} bytes", text.len());
    assert_eq!(serde_json::from_str::<Value>(text).unwrap()["more"], true);
    let found = client.call("search_messages", json!({ "query": "message", "limit": 1000 }));
    check_size(&found);
    assert!(found.ok()["cursor"].is_string());
}

#[test]
fn megabyte_payload_is_shown_in_parts() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex", "claude"]);
    let served = TestServer::start(&sandbox);
    // One byte per character, and four: a model counts neither, but both are bounded.
    let bodies = ["0123456789".repeat(100_000), "🦀🐍".repeat(125_000)];
    let mut claude = test_support::mcp::Client::streamable(&served, Some("claude"));
    for body in &bodies {
        claude.ok("send_message", super::task("codex", body));
    }
    let mut codex = test_support::mcp::Client::sse(&served, Some("codex"));
    let answer = codex.call("wait_for_message", json!({ "timeout": 60 }));
    check_size(&answer);
    let mut listed = Vec::new();
    for verbose in [false, true] {
        let mut arguments = json!({ "verbose": verbose });
        loop {
            let answer = codex.call("check_inbox", arguments.clone());
            check_size(&answer);
            let page = answer.ok();
            listed.extend(ids(&page));
            match page.get("cursor") {
                Some(cursor) => arguments["cursor"] = cursor.clone(),
                None => break,
            }
        }
    }
    assert_eq!(listed.len(), 4);
    assert_eq!(listed[..2], listed[2..]);
    for (id, body) in listed.iter().zip(&bodies) {
        let mut whole = String::new();
        let mut pieces = 0;
        while whole.len() < body.len() {
            let offset = whole.chars().count();
            let answer = codex.call("check_inbox", json!({ "id": id, "offset": offset }));
            check_size(&answer);
            let data = answer.ok();
            let piece = data["messages"][0]["payload"].as_str().unwrap().to_owned();
            assert!(!piece.is_empty());
            whole.push_str(&piece);
            pieces += 1;
        }
        assert!(whole == *body, "{id} is another one");
        println!("{} bytes in {pieces} pieces", body.len());
    }
}
