use std::time::Duration;

use rmcp::ServiceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::time::Instant;

use crate::test_server::TestTools;

/// A client that records every notification and its time.
struct Wire {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Wire {
    async fn to(tools: &TestTools) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = tools.server();
        tokio::spawn(async move {
            if let Ok(running) = Box::pin(server.serve(theirs)).await {
                let _ = running.waiting().await;
            }
        });
        let (reader, writer) = tokio::io::split(ours);
        let mut wire = Self { lines: BufReader::new(reader).lines(), writer };
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        wire.request(1, "initialize", params).await;
        wire.answer(1).await;
        wire.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        wire
    }

    async fn say(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, id: u32, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().expect("a message")).unwrap()
    }

    async fn answer(&mut self, id: u32) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }
}

/// A wait of half an hour, with two minutes in which the client sends nothing.
#[tokio::test]
async fn wait_sends_progress_at_least_every_minute() {
    let tools = TestTools::new().await;
    let mut client = Wire::to(&tools).await;
    let register = json!({ "name": "register_chat_agent", "arguments": { "name": "codex" } });
    client.request(2, "tools/call", register).await;
    client.answer(2).await;
    let (arguments, meta) = (json!({ "timeout": 1800 }), json!({ "progressToken": "t" }));
    let wait = json!({ "name": "wait_for_message", "arguments": arguments, "_meta": meta });
    client.request(3, "tools/call", wait).await;

    tokio::time::pause();
    let (mut first, mut last) = (None, None);
    loop {
        let message = client.next().await;
        assert_eq!(message["params"]["progressToken"], "t", "{message}");
        let now = Instant::now();
        assert!(last.is_none_or(|last| now.duration_since(last) <= Duration::from_mins(1)), "{message}");
        last = Some(now);
        let first = *first.get_or_insert(now);
        if now.duration_since(first) >= Duration::from_mins(28) {
            assert_eq!(message["params"]["total"], 1800.0);
            break;
        }
    }
    tokio::time::resume();
    let sender = tools.agent("claude").await;
    sender
        .ok("send_message", json!({ "recipient": "codex", "action": "delegate_task", "payload": "at last" }))
        .await;
    let answer = client.answer(3).await;
    assert_eq!(answer["structuredContent"]["messages"][0]["payload"], "at last", "{answer}");
}
