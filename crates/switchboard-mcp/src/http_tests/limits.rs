//! Clients that send too much, too slowly, or do not read.

use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::rig::{PATIENCE, Rig, call, initialize};
use crate::HttpConfig;

#[tokio::test]
async fn m16_a_body_that_is_too_large_is_refused() {
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
async fn m16_a_chunked_body_that_is_too_large_gets_its_answer() {
    let rig = Rig::with(HttpConfig { body_limit: 1024, ..HttpConfig::default() }).await;
    let head = rig.request("POST /mcp", &[], "").replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let reply = rig.send(format!("{head}1000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1000))).await;
    assert_eq!(reply.problem(), (413, json!("body_too_large")));
}

#[tokio::test]
async fn m16_a_body_that_does_not_come_is_not_waited_for() {
    let rig =
        Rig::with(HttpConfig { body_timeout: Duration::from_millis(100), ..HttpConfig::default() }).await;
    let head = rig.request("POST /mcp", &[], "").replace("Content-Length: 0", "Content-Length: 9");
    assert_eq!(rig.send(head + "{").await.problem(), (408, json!("body_too_slow")));
}

#[tokio::test]
async fn m16_a_head_that_does_not_come_is_not_waited_for() {
    let rig = Rig::with(HttpConfig { header_timeout: Duration::from_secs(1), ..HttpConfig::default() }).await;
    for begun in ["", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut stream = rig.connect(begun).await;
        stream.hear_end().await;
    }
    let mut idle = rig.connect("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    idle.hear_until("\"status\":\"ok\"").await;
    idle.hear_end().await;
}

#[tokio::test]
async fn m16_packed_bodies_and_huge_heads_are_refused() {
    let rig = Rig::start().await;
    let reply = rig.ask("POST /mcp", &["Content-Encoding: gzip"], &initialize("2025-11-25")).await;
    assert_eq!(reply.problem(), (415, json!("not_json")));
    let huge = format!("X-Huge: {}", "x".repeat(100_000));
    assert_eq!(rig.ask("GET /extra", &[&huge], "").await.status, 431);
}

#[tokio::test]
async fn m14_who_does_not_read_loses_the_connection_and_nobody_else_notices() {
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
    good.hear_until("unhurt").await;
    // The session that nobody reads ends, and with it the place where its messages waited.
    rig.handlers_left(2).await;
    assert_eq!(rig.health().await["sessions"], 2);
    rig.floods_over().await;
    assert!(deaf.hear_end().await < 64_000_000, "the flood was cut off");
    assert!(deaf_too.hear_end().await < 64_000_000, "the flood was cut off");
    assert_eq!(rig.call(&session, "alive", &[]).await.said(), "alive");
}

#[tokio::test]
async fn m14_streams_are_kept_alive() {
    let rig = Rig::with(HttpConfig { keep_alive: Duration::from_millis(50), ..HttpConfig::default() }).await;
    let (mut stream, _) = rig.sse("", &[]).await;
    let heard = stream.hear_until(": keep-alive\n\n\r\n").await;
    assert!(heard.contains("cache-control: no-cache, no-transform"), "{heard}");
}

#[tokio::test]
async fn m14_a_thousand_idle_streams_are_no_burden() {
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
    stream.hear_until("through").await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let rig = Rig::with(HttpConfig { max_connections: 1, ..HttpConfig::default() }).await;
    let (_stream, _) = rig.sse("", &[]).await;
    let reply = rig.ask("GET /extra", &[], "").await;
    assert_eq!(reply.problem(), (503, json!("too_many_connections")));
}
