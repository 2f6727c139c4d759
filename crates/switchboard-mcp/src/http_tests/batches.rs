//! Tests of JSON-RPC batches, which only protocol version 2025-03-26 has.

use serde_json::{Value, json};

use super::rig::{Reply, Rig, call, initialize};

const BATCHED: &str = "2025-03-26";

/// Opens a session over `/mcp` with a protocol version; returns its header.
async fn session(rig: &Rig, version: &str) -> String {
    let reply = rig.ask("POST /mcp", &[], &initialize(version)).await;
    format!("Mcp-Session-Id: {}", reply.header("mcp-session-id").unwrap())
}

async fn post(rig: &Rig, session: &str, body: &str) -> Reply {
    rig.ask("POST /mcp", &[session], body).await
}

/// Returns the ids of the answers, sorted as text.
fn ids(answers: &Value) -> Vec<String> {
    let answers = answers.as_array().unwrap_or_else(|| panic!("{answers}"));
    let mut ids: Vec<String> = answers.iter().map(|answer| answer["id"].to_string()).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn batch_is_answered_with_array() {
    let rig = Rig::start().await;
    let session = session(&rig, BATCHED).await;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(&rig, &session, &format!("[{notification}]")).await.status, 202);

    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let parts = [&call(1, "whoami"), notification, "7", ping, "[]", &call(2, "echo"), r#"{"id":9}"#];
    let reply = post(&rig, &session, &format!(" [{}]", parts.join(", "))).await;
    assert_eq!((reply.status, reply.header("content-type").unwrap().as_str()), (200, "application/json"));
    let answers = reply.json();
    assert_eq!(ids(&answers), ["\"p\"", "1", "2", "9", "null", "null"], "{answers}");
    let of = |id: Value| answers.as_array().unwrap().iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(of(json!(2))["result"]["content"][0]["text"], "echo");
    assert!(of(json!(1))["result"]["content"][0]["text"].as_str().unwrap().contains("StreamableHttp"));
    assert_eq!(of(json!(9))["error"]["code"], -32600);
    assert_eq!(of(json!(null))["error"]["code"], -32600);
}

#[tokio::test]
async fn slow_batch_is_answered_on_stream() {
    let rig = Rig::start().await;
    let session = session(&rig, BATCHED).await;
    let body = format!("[{},{}]", call(1, "later"), call(2, "echo"));
    let mut stream = rig.connect(rig.request("POST /mcp", &[&session], &body)).await;
    let heard = stream.read_until("\"id\":2").await;
    assert!(heard.contains("content-type: text/event-stream"), "{heard}");
    assert!(!heard.contains("at last") && !heard.contains("\nid:") && !heard.contains("data: \n"), "{heard}");
    rig.record.released.notify_one();
    stream.read_until("at last").await;
    stream.read_until("0\r\n\r\n").await;
}

#[tokio::test]
async fn batch_reports_progress_and_ends_with_connection() {
    let rig = Rig::start().await;
    let session = session(&rig, BATCHED).await;
    let body = format!("[{},{}]", call(1, "flood"), call(2, "unheard"));
    let mut stream = rig.connect(rig.request("POST /mcp", &[&session], &body)).await;
    stream.read_until("notifications/progress").await;
    rig.record.waiting.notified().await;
    drop(stream);
    rig.record.cancelled.notified().await;
}

#[tokio::test]
async fn invalid_batches_are_rejected() {
    let rig = Rig::start().await;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#;
    assert_eq!(rig.ask("POST /mcp", &[], batch).await.problem(), (400, json!(-32600)));
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let session = session(&rig, version).await;
        let reply = post(&rig, &session, batch).await;
        assert_eq!(reply.problem(), (400, json!(-32600)), "{version}");
        assert!(reply.body.contains(BATCHED), "{}", reply.body);
    }
    let session = session(&rig, BATCHED).await;
    let many = format!("[{}]", vec![r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#; 65].join(","));
    for (body, code) in [("[]", -32600), ("[", -32700), (&*many, -32600)] {
        assert_eq!(post(&rig, &session, body).await.problem(), (400, json!(code)), "{body}");
    }
    let opening = format!("[{}]", initialize(BATCHED));
    assert_eq!(post(&rig, &session, &opening).await.problem(), (400, json!(-32600)));
    let other = ["Mcp-Session-Id: no-such-session"];
    assert_eq!(rig.ask("POST /mcp", &other, batch).await.status, 400);
    let picky = rig.request("POST /mcp", &[&session], batch).replace(", text/event-stream", "");
    assert_eq!(rig.send(picky).await.problem().0, 406);
    let reply = rig.ask("POST /mcp", &[&session, "switchboard-agent: thief"], batch).await;
    assert_eq!(reply.problem(), (403, json!("other_agent")));
}

#[tokio::test]
async fn sse_batch_is_answered_on_stream() {
    let rig = Rig::start().await;
    for (version, is_taken) in [(BATCHED, true), ("2024-11-05", false)] {
        let (mut stream, endpoint) = rig.sse("", &[]).await;
        let address = format!("POST {endpoint}");
        assert_eq!(rig.ask(&address, &[], &initialize(version)).await.status, 202);
        stream.read_until("\"serverInfo\"").await;
        let body = format!("[{},7,{}]", call(1, "one"), call(2, "two"));
        let reply = rig.ask(&address, &[], &body).await;
        if is_taken {
            assert_eq!(reply.status, 202, "{reply:?}");
            for text in ["\"text\":\"one\"", "\"text\":\"two\"", "\"id\":null,\"error\""] {
                stream.read_until(text).await;
            }
        } else {
            assert_eq!(reply.problem(), (400, json!(-32600)));
        }
    }
}
