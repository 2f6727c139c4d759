//! Tests of answers for clients that resume with `Last-Event-ID`.

use tokio::time::timeout;

use super::rig::{PATIENCE, Rig, call};

/// Starts a call and disconnects before it is answered. Returns the headers for resuming.
async fn disconnect_during_call(rig: &Rig, session: &str) -> [String; 3] {
    let header = format!("Mcp-Session-Id: {session}");
    let mut stream = rig.connect(rig.request("POST /mcp", &[&header], &call(9, "unheard"))).await;
    let primed = stream.read_until("retry:").await;
    let last = primed.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    [header, "Accept: text/event-stream".to_owned(), format!("Last-Event-ID: {last}")]
}

#[tokio::test]
async fn resuming_client_gets_cached_answer() {
    let rig = Rig::start().await;
    let session = rig.session(&[]).await;
    let back = disconnect_during_call(&rig, &session).await;
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
    // This later call is answered only after the earlier one.
    assert_eq!(rig.call(&session, "still here", &[]).await.text(), "still here");
    let headers = back.each_ref().map(String::as_str);
    let reply = rig.ask("GET /mcp", &headers, "").await;
    assert_eq!(reply.text(), "nobody heard it");
    assert!(!reply.body.contains("retry:"), "an event that the client has is sent again: {}", reply.body);
    let unknown = rig.ask("GET /mcp", &[headers[0], headers[1], "Last-Event-ID: 0/99999"], "").await;
    assert_eq!((unknown.status, unknown.body.contains("data: {")), (200, false), "{unknown:?}");
}

#[tokio::test]
async fn client_resumes_at_any_moment() {
    let rig = Rig::start().await;
    let session = rig.session(&[]).await;
    for _ in 0..50 {
        let back = disconnect_during_call(&rig, &session).await;
        let headers = back.each_ref().map(String::as_str);
        assert_eq!(rig.ask("GET /mcp", &headers, "").await.text(), "nobody heard it");
        timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
    }
}
