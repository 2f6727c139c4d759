//! Tests of the ownership, lifetime and isolation of sessions.

use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;
use tokio::time::timeout;

use super::rig::{PATIENCE, Rig, call, initialize, listed, modern_call, modern_headers};
use crate::{AGENT_HEADER, HttpConfig};

fn named(agent: &str) -> String {
    format!("{AGENT_HEADER}: {agent}")
}

#[tokio::test]
async fn session_of_other_agent_is_rejected() {
    let rig = Rig::start().await;
    let session = rig.session(&[&named("codex")]).await;
    let (_stream, endpoint) = rig.sse("", &[&named("codex")]).await;
    let sse = endpoint.split_once("sessionId=").unwrap().1;
    for id in [session.as_str(), sse] {
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    let unknown = (404, json!("session_unknown"));
    assert_eq!(rig.call(sse, "whoami", &[]).await.problem(), unknown);
    assert_eq!(rig.call("guess", "whoami", &[]).await.problem(), unknown);
    let crossed = rig.ask(&format!("POST /messages?sessionId={session}"), &[], &call(1, "whoami")).await;
    assert_eq!(crossed.problem(), unknown);
    for line in ["GET /mcp", "DELETE /mcp"] {
        let reply = rig.ask(line, &["Mcp-Session-Id: guess", "Accept: text/event-stream"], "").await;
        assert_eq!(reply.problem(), unknown, "{line}");
    }

    let other = (403, json!("other_agent"));
    assert_eq!(rig.call(&session, "whoami", &[&named("gemini")]).await.problem(), other);
    assert_eq!(
        rig.ask(&format!("POST {endpoint}"), &[&named("gemini")], &call(1, "x")).await.problem(),
        other
    );
    let nameless = rig.session(&[]).await;
    assert_eq!(rig.call(&nameless, "whoami", &[&named("codex")]).await.problem(), other);
    assert_eq!(rig.call(&session, "whoami", &[&named("CODEX")]).await.status, 200, "names ignore case");
}

#[tokio::test]
async fn caller_is_reported_for_every_transport() {
    let rig = Rig::start().await;
    let session = rig.session(&[&named("codex")]).await;
    for headers in [vec![], vec![named("codex")]] {
        let text = rig.call(&session, "whoami", &listed(&headers)).await.text();
        assert_eq!(text, r#"{"agent":"codex","session":true,"transport":"StreamableHttp"}"#);
    }
    let mut headers = modern_headers("whoami").to_vec();
    headers.push(named("gemini"));
    let text = rig.ask("POST /mcp", &listed(&headers), &modern_call("2026-07-28", "whoami")).await.text();
    assert_eq!(text, r#"{"agent":"gemini","session":false,"transport":"Stateless"}"#);

    let (mut stream, endpoint) = rig.sse("?agent=lead%20coder", &[]).await;
    for body in [initialize("2024-11-05"), call(1, "whoami")] {
        assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], &body).await.status, 202);
    }
    stream.read_until(r#"{\"agent\":\"lead coder\",\"session\":true,\"transport\":\"Sse\"}"#).await;

    for agent in ["../x", "all", ""] {
        let reply = rig.ask("GET /sse", &[&named(agent)], "").await;
        assert_eq!(reply.problem(), (400, json!("bad_agent")), "{agent}");
    }
}

#[tokio::test]
async fn clients_with_equal_ids_are_isolated() {
    let rig = Rig::start().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let (stream, endpoint) = rig.sse("", &[]).await;
        assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], &initialize("2024-11-05")).await.status, 202);
        streams.push((stream, endpoint, rig.session(&[]).await));
    }
    for (number, (_, endpoint, session)) in streams.iter().enumerate() {
        let tool = format!("echo-{number}-");
        assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], &call(1, &tool)).await.status, 202);
        assert_eq!(rig.call(session, &tool, &[]).await.text(), tool);
    }
    for (number, (stream, _, _)) in streams.iter_mut().enumerate() {
        let heard = stream.read_until("echo-").await;
        assert!(heard.contains(&format!("echo-{number}-")), "{heard}");
        assert_eq!(heard.matches("echo-").count(), 1, "{heard}");
    }
}

#[tokio::test]
async fn invalid_params_are_answered_on_stream() {
    let rig = Rig::start().await;
    let (mut stream, endpoint) = rig.sse("", &[]).await;
    let body = r#"{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{}}"#;
    assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], body).await.status, 202);
    stream.read_until(r#""id":"q","error":{"code":-32602"#).await;
}

#[tokio::test]
async fn disconnect_cancels_stateless_request() {
    let rig = Rig::start().await;
    let headers = modern_headers("wait");
    let request = rig.request("POST /mcp", &listed(&headers), &modern_call("2026-07-28", "wait"));
    let stream = rig.connect(request).await;
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
}

#[tokio::test]
async fn disconnect_does_not_cancel_session_request() {
    let rig = Rig::start().await;
    let session = rig.session(&[]).await;
    let header = format!("Mcp-Session-Id: {session}");
    let stream = rig.connect(rig.request("POST /mcp", &[&header], &call(9, "wait"))).await;
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    assert_eq!(rig.call(&session, "still here", &[]).await.text(), "still here");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#;
    assert_eq!(rig.ask("POST /mcp", &[&header], cancel).await.status, 202);
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
}

#[tokio::test]
async fn disconnect_fires_response_closed() {
    let rig = Rig::start().await;
    let session = rig.session(&[]).await;
    let header = format!("Mcp-Session-Id: {session}");
    let stream = rig.connect(rig.request("POST /mcp", &[&header], &call(9, "unheard"))).await;
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
}

#[tokio::test]
async fn response_starts_before_its_answer() {
    let rig = Rig::start().await;
    let start = async |tool: &str| {
        let headers = modern_headers(tool);
        let request = rig.request("POST /mcp", &listed(&headers), &modern_call("2026-07-28", tool));
        let mut stream = rig.connect(request).await;
        let heard = stream.read_until(": keep-alive\n\n").await;
        assert!(heard.starts_with("HTTP/1.1 200 ") && heard.contains("text/event-stream"), "{heard}");
        stream
    };
    for (tool, text) in [("later", r#""text":"at last""#), ("fails later", r#""message":"failed at last""#)] {
        let mut stream = start(tool).await;
        rig.record.released.notify_one();
        let heard = stream.read_until("0\r\n\r\n").await;
        let data =
            heard.lines().find_map(|line| line.strip_prefix("data: {")).unwrap_or_else(|| panic!("{heard}"));
        assert!(data.contains(text), "{heard}");
    }
    // Closing the deferred response cancels the request, like closing the connection before the response starts.
    let stream = start("wait").await;
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
}

#[tokio::test]
async fn sse_session_ends_with_its_stream() {
    let rig = Rig::start().await;
    let (stream, endpoint) = rig.sse("", &[]).await;
    for body in [initialize("2024-11-05"), call(1, "wait")] {
        assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], &body).await.status, 202);
    }
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
    rig.wait_for_handlers(0).await;
    let reply = rig.ask(&format!("POST {endpoint}"), &[], &call(2, "x")).await;
    assert_eq!(reply.problem(), (404, json!("session_unknown")));
    assert_eq!(rig.health().await["sessions"], 0);
}

#[tokio::test]
async fn deleted_session_is_unknown() {
    let rig = Rig::start().await;
    let session = rig.session(&[]).await;
    let reply = rig.ask("DELETE /mcp", &[&format!("Mcp-Session-Id: {session}")], "").await;
    assert_eq!(reply.status, 204);
    assert_eq!(rig.call(&session, "x", &[]).await.problem(), (404, json!("session_unknown")));
    rig.wait_for_handlers(0).await;
}

#[tokio::test]
async fn idle_session_ends() {
    let config = HttpConfig { session_idle_timeout: Duration::from_secs(2), ..HttpConfig::default() };
    let rig = Rig::with(config).await;
    let (wait_for_count, kept) = (rig.session(&[]).await, rig.session(&[]).await);
    let headers = [format!("Mcp-Session-Id: {kept}"), "Accept: text/event-stream".to_owned()];
    let mut stream = rig.connect(rig.request("GET /mcp", &listed(&headers), "")).await;
    stream.read_until("text/event-stream").await;
    let waiting = rig.connect(rig.request("POST /mcp", &[&headers[0]], &call(1, "wait"))).await;
    rig.wait_for_handlers(1).await;
    assert_eq!(rig.call(&wait_for_count, "x", &[]).await.problem(), (404, json!("session_unknown")));
    assert_eq!(rig.call(&kept, "x", &[]).await.text(), "x");
    drop((waiting, stream));
    rig.wait_for_handlers(0).await;
}

#[tokio::test]
async fn session_limit_is_enforced() {
    let rig = Rig::with(HttpConfig { max_sessions: 2, ..HttpConfig::default() }).await;
    let session = rig.session(&[]).await;
    let (stream, _) = rig.sse("", &[]).await;
    for (line, body) in [("GET /sse", String::new()), ("POST /mcp", initialize("2025-11-25"))] {
        let reply = rig.ask(line, &[], &body).await;
        assert_eq!(reply.problem(), (429, json!("too_many_sessions")), "{line}");
        reply.header("retry-after").unwrap().parse::<u32>().unwrap();
    }
    let headers = modern_headers("x");
    let stateless = rig.ask("POST /mcp", &listed(&headers), &modern_call("2026-07-28", "x")).await;
    assert_eq!(stateless.text(), "x", "who needs no session is not held up");
    drop(stream);
    rig.wait_for_handlers(1).await;
    rig.ask("DELETE /mcp", &[&format!("Mcp-Session-Id: {session}")], "").await;
    rig.wait_for_handlers(0).await;
    rig.session(&[]).await;
    rig.session(&[]).await;
}

#[tokio::test]
async fn rmcp_client_is_served() {
    let rig = Rig::start().await;
    let uri = format!("http://127.0.0.1:{}/mcp", rig.port);
    let config = StreamableHttpClientTransportConfig::with_uri(uri).auth_header(rig.token.reveal());
    let mut client = ClientConfig::default();
    client.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let client = client.serve(StreamableHttpClientTransport::from_config(config)).await.unwrap();
    let result = client.call_tool(CallToolRequestParams::new("whoami")).await.unwrap();
    let text = serde_json::to_value(result).unwrap()["content"][0]["text"].clone();
    assert_eq!(text, r#"{"agent":null,"session":true,"transport":"StreamableHttp"}"#);
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn shutdown_closes_all_connections_in_time() {
    let rig = Rig::start().await;
    let (mut stream, endpoint) = rig.sse("", &[]).await;
    for body in [initialize("2024-11-05"), call(1, "wait")] {
        rig.ask(&format!("POST {endpoint}"), &[], &body).await;
    }
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    let session = rig.session(&[]).await;
    let headers = [format!("Mcp-Session-Id: {session}"), "Accept: text/event-stream".to_owned()];
    let mut standalone = rig.connect(rig.request("GET /mcp", &listed(&headers), "")).await;
    standalone.read_until("text/event-stream").await;

    rig.shutdown.cancel();
    timeout(PATIENCE, rig.served).await.unwrap().unwrap().unwrap();
    stream.read_to_end().await;
    standalone.read_to_end().await;
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", rig.port)).await.is_err());
}
