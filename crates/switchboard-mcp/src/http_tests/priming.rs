//! Tests of priming events, which exist since protocol version 2025-11-25.

use super::rig::{Rig, call, initialize};

const OLD: [&str; 3] = ["2024-11-05", "2025-03-26", "2025-06-18"];

/// Returns true if a stream has an event without data, or a `retry` field.
fn is_primed(events: &str) -> bool {
    events.lines().any(|line| line.trim_end() == "data:" || line.starts_with("retry:"))
}

/// Initializes a session; returns its header and the body of the response.
async fn open(rig: &Rig, version: &str) -> (String, String) {
    let reply = rig.ask("POST /mcp", &[], &initialize(version)).await;
    assert_eq!(reply.event()["result"]["protocolVersion"], version);
    (format!("Mcp-Session-Id: {}", reply.header("mcp-session-id").unwrap()), reply.body)
}

/// Reads the session's own stream until the session ends.
async fn own_stream(rig: &Rig, session: &str) -> String {
    let headers = [session, "Accept: text/event-stream"];
    let mut stream = rig.connect(rig.request("GET /mcp", &headers, "")).await;
    stream.read_until("\r\n\r\n").await;
    let ended = rig.ask("DELETE /mcp", &[session], "").await;
    assert_eq!(ended.status, 204, "{ended:?}");
    stream.read_until("0\r\n\r\n").await
}

#[tokio::test]
async fn old_sessions_get_no_priming_event() {
    let rig = Rig::start().await;
    for version in OLD {
        let (session, body) = open(&rig, version).await;
        assert!(!is_primed(&body), "{version}: {body}");
        let called = rig.ask("POST /mcp", &[&session], &call(1, "hello")).await;
        assert_eq!(called.text(), "hello");
        assert!(!is_primed(&called.body), "{version}: {}", called.body);
        let stream = own_stream(&rig, &session).await;
        assert!(!is_primed(&stream), "{version}: {stream}");
    }
}

#[tokio::test]
async fn new_sessions_get_priming_events() {
    let rig = Rig::start().await;
    let (session, _) = open(&rig, "2025-11-25").await;
    let called = rig.ask("POST /mcp", &[&session], &call(1, "hello")).await;
    assert!(is_primed(&called.body), "{}", called.body);
    let stream = own_stream(&rig, &session).await;
    assert!(is_primed(&stream) && stream.contains("id: 0"), "{stream}");
}
