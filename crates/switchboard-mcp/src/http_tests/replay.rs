//! Answers for clients that come back for them with `Last-Event-ID`.

use tokio::time::timeout;

use super::rig::{PATIENCE, Rig, call};

/// Begins a call whose tool answers as soon as its client is gone, and leaves. Returns the headers of a client that comes back.
async fn leave(rig: &Rig, session: &str) -> [String; 3] {
    let header = format!("Mcp-Session-Id: {session}");
    let mut stream = rig.connect(rig.request("POST /mcp", &[&header], &call(9, "unheard"))).await;
    let primed = stream.hear_until("retry:").await;
    let last = primed.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    [header, "Accept: text/event-stream".to_owned(), format!("Last-Event-ID: {last}")]
}

#[tokio::test]
async fn m13_late_client_gets_cached_answer() {
    let rig = Rig::start().await;
    let session = rig.session(&[]).await;
    let back = leave(&rig, &session).await;
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
    // The answer has left the handler before that of a later call.
    assert_eq!(rig.call(&session, "still here", &[]).await.said(), "still here");
    let headers = back.each_ref().map(String::as_str);
    let reply = rig.ask("GET /mcp", &headers, "").await;
    assert_eq!(reply.said(), "nobody heard it");
    assert!(!reply.body.contains("retry:"), "an event that the client has is sent again: {}", reply.body);
    let unknown = rig.ask("GET /mcp", &[headers[0], headers[1], "Last-Event-ID: 0/99999"], "").await;
    assert_eq!((unknown.status, unknown.body.contains("data: {")), (200, false), "{unknown:?}");
}

#[tokio::test]
async fn m13_client_resumes_at_any_moment() {
    let rig = Rig::start().await;
    let session = rig.session(&[]).await;
    for _ in 0..50 {
        let back = leave(&rig, &session).await;
        let headers = back.each_ref().map(String::as_str);
        assert_eq!(rig.ask("GET /mcp", &headers, "").await.said(), "nobody heard it");
        timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
    }
}
