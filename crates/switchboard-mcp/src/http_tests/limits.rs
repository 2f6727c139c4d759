//! Tests with clients that send too much or too slowly, or that do not read.

use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::rig::{PATIENCE, Rig, call, initialize};
use crate::HttpConfig;

#[tokio::test]
async fn oversized_body_is_rejected() {
    let rig = Rig::with(HttpConfig { body_limit: 1024, ..HttpConfig::default() }).await;
    let body = format!("\"{}\"", "x".repeat(100_000));
    let too_large = (413, json!("body_too_large"));
    let reply = rig.ask("POST /mcp", &[], &body).await;
    assert_eq!(reply.problem(), too_large);
    assert_eq!(reply.header("connection").as_deref(), Some("close"));

    let head = rig.request("POST /mcp", &[], "").replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let mut endless = rig.connect(head).await;
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    let sending = async { while endless.stream.write_all(chunk.as_bytes()).await.is_ok() {} };
    timeout(PATIENCE, sending).await.expect("the server hangs up on a body without end");
    assert_eq!(rig.health().await["status"], "ok");
}

#[tokio::test]
async fn oversized_chunked_body_is_rejected() {
    let rig = Rig::with(HttpConfig { body_limit: 1024, ..HttpConfig::default() }).await;
    let head = rig.request("POST /mcp", &[], "").replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let reply = rig.send(format!("{head}1000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1000))).await;
    assert_eq!(reply.problem(), (413, json!("body_too_large")));
}

#[tokio::test]
async fn body_times_out() {
    let rig =
        Rig::with(HttpConfig { body_timeout: Duration::from_millis(100), ..HttpConfig::default() }).await;
    let head = rig.request("POST /mcp", &[], "").replace("Content-Length: 0", "Content-Length: 9");
    assert_eq!(rig.send(head + "{").await.problem(), (408, json!("body_too_slow")));
}

#[tokio::test]
async fn header_times_out() {
    let rig = Rig::with(HttpConfig { header_timeout: Duration::from_secs(1), ..HttpConfig::default() }).await;
    for begun in ["", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut stream = rig.connect(begun).await;
        stream.read_to_end().await;
    }
    let mut idle = rig.connect("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    idle.read_until("\"status\":\"ok\"").await;
    idle.read_to_end().await;
}

#[tokio::test]
async fn compressed_bodies_and_huge_headers_are_rejected() {
    let rig = Rig::start().await;
    let reply = rig.ask("POST /mcp", &["Content-Encoding: gzip"], &initialize("2025-11-25")).await;
    assert_eq!(reply.problem(), (415, json!("not_json")));
    let huge = format!("X-Huge: {}", "x".repeat(100_000));
    assert_eq!(rig.ask("GET /extra", &[&huge], "").await.status, 431);
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let config = HttpConfig { write_timeout: Duration::from_millis(300), ..HttpConfig::default() };
    let rig = Rig::with(config).await;
    let (mut deaf, endpoint) = rig.sse("", &[]).await;
    for body in [initialize("2024-11-05"), call(1, "flood")] {
        assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], &body).await.status, 202);
    }
    let session = rig.session(&[]).await;
    let header = format!("Mcp-Session-Id: {session}");
    let mut deaf_too = rig.connect(rig.request("POST /mcp", &[&header], &call(1, "flood"))).await;

    let (mut good, other) = rig.sse("", &[]).await;
    for body in [initialize("2024-11-05"), call(1, "unhurt")] {
        assert_eq!(rig.ask(&format!("POST {other}"), &[], &body).await.status, 202);
    }
    good.read_until("unhurt").await;
    // The session whose client does not read ends and releases its permit.
    rig.wait_for_handlers(2).await;
    assert_eq!(rig.health().await["sessions"], 2);
    rig.wait_for_floods().await;
    assert!(deaf.read_to_end().await < 64_000_000, "the flood was cut off");
    assert!(deaf_too.read_to_end().await < 64_000_000, "the flood was cut off");
    assert_eq!(rig.call(&session, "alive", &[]).await.text(), "alive");
}

#[tokio::test]
async fn streams_send_keep_alive() {
    let rig = Rig::with(HttpConfig { keep_alive: Duration::from_millis(50), ..HttpConfig::default() }).await;
    let (mut stream, _) = rig.sse("", &[]).await;
    let heard = stream.read_until(": keep-alive\n\n\r\n").await;
    assert!(heard.contains("cache-control: no-cache, no-transform"), "{heard}");
}

#[tokio::test]
async fn thousand_idle_streams_are_served() {
    let limits = getrlimit(Resource::Nofile);
    let enough = rustix::process::Rlimit { current: limits.maximum, maximum: limits.maximum };
    setrlimit(Resource::Nofile, enough).unwrap();
    let rig = Rig::start().await;
    let mut streams = Vec::new();
    for _ in 0..1000 {
        streams.push(rig.sse("", &[]).await);
    }
    assert_eq!(rig.health().await["sessions"], 1000);
    let (stream, endpoint) = &mut streams[500];
    for body in [initialize("2024-11-05"), call(1, "through")] {
        assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], &body).await.status, 202);
    }
    stream.read_until("through").await;
}

#[tokio::test]
async fn excess_connection_gets_503() {
    let rig = Rig::with(HttpConfig { max_connections: 1, ..HttpConfig::default() }).await;
    let (_stream, _) = rig.sse("", &[]).await;
    let reply = rig.ask("GET /extra", &[], "").await;
    assert_eq!(reply.problem(), (503, json!("too_many_connections")));
}
