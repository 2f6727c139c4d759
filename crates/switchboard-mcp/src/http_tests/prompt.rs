//! Tests of prompt calls in sessions, which bypass `rmcp`.

use serde_json::{Value, json};
use tokio::time::timeout;

use super::rig::{PATIENCE, Reply, Rig, call};
use crate::AGENT_HEADER;

impl Rig {
    /// Opens a session over `/mcp` whose handler has registered a raw call handler.
    pub(super) async fn prompt_session(&self, headers: &[&str]) -> String {
        let session = self.session(headers).await;
        let header = format!("Mcp-Session-Id: {session}");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        assert_eq!(self.ask("POST /mcp", &[&header], &initialized).await.status, 202);
        timeout(PATIENCE, self.record.offered.notified()).await.unwrap();
        session
    }

    async fn post(&self, session: &str, body: &Value, headers: &[&str]) -> Reply {
        let session = format!("Mcp-Session-Id: {session}");
        let headers: Vec<_> = headers.iter().copied().chain([session.as_str()]).collect();
        self.ask("POST /mcp", &headers, &body.to_string()).await
    }
}

fn request(id: Value, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[tokio::test]
async fn prompt_call_is_answered_with_plain_json() {
    let rig = Rig::start().await;
    let session = rig.prompt_session(&[&format!("{AGENT_HEADER}: codex")]).await;
    let arguments = json!({"large": 12_345_678_901_234_567_890_u64});
    let reply = rig.post(&session, &request("seven".into(), "prompt", arguments.clone()), &[]).await;
    assert_eq!((reply.status, reply.header("content-type").as_deref()), (200, Some("application/json")));
    let caller = json!({"transport": "StreamableHttp", "session": session, "agent": "codex"});
    let result = json!({"caller": caller, "arguments": arguments});
    assert_eq!(reply.json(), json!({"jsonrpc": "2.0", "id": "seven", "result": result}));
    // `rmcp` answers calls of other tools, and all calls of sessions without a raw call handler.
    assert_eq!(rig.call(&session, "echo", &[]).await.text(), "echo");
    let other = rig.session(&[]).await;
    assert_eq!(rig.call(&other, "prompt", &[]).await.text(), "prompt");
}

#[tokio::test]
async fn prompt_call_is_subject_to_admission() {
    let rig = Rig::start().await;
    let session = rig.prompt_session(&[&format!("{AGENT_HEADER}: codex")]).await;
    let header = format!("Mcp-Session-Id: {session}");
    for tool in ["prompt", "echo"] {
        let gemini = format!("{AGENT_HEADER}: gemini");
        assert_eq!(rig.call(&session, tool, &[&gemini]).await.problem(), (403, json!("other_agent")));
        assert_eq!(rig.call("guess", tool, &[]).await.problem(), (404, json!("session_unknown")));
        let unknown = rig.call(&session, tool, &["MCP-Protocol-Version: 1999-01-01"]).await;
        assert_eq!(unknown.status, 400, "{unknown:?}");
        // Requests with headers that repeat fields of the body go to `rmcp`, which compares the two.
        assert_eq!(rig.call(&session, tool, &["Mcp-Method: tools/list"]).await.text(), tool);
        let one_kind = rig
            .request("POST /mcp", &[&header], &call(1, tool))
            .replace("application/json, text/event-stream", "application/json");
        assert_eq!(rig.send(one_kind).await.status, 406, "{tool}");
        let nobody = rig.request("POST /mcp", &[&header], &call(1, tool)).replace("Bearer ", "Bearer x");
        assert_eq!(rig.send(nobody).await.problem(), (401, json!("token_wrong")));
    }
}

#[tokio::test]
async fn cancelled_prompt_call_has_no_answer() {
    let rig = Rig::start().await;
    let session = rig.prompt_session(&[]).await;
    let header = format!("Mcp-Session-Id: {session}");
    let waiting = request(7.into(), "prompt wait", json!({})).to_string();
    let mut first = rig.connect(rig.request("POST /mcp", &[&header], &waiting)).await;
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    let again = rig.post(&session, &request(7.into(), "prompt", json!({})), &[]).await;
    assert_eq!(again.problem(), (200, json!(-32600)), "two answers to one id could not be told apart");
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(rig.post(&session, &cancelled, &[]).await.status, 202);
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
    let heard = first.read_until("\r\n\r\n").await;
    assert!(heard.contains("text/event-stream") && heard.contains("content-length: 0"), "{heard}");
}

#[tokio::test]
async fn slow_prompt_call_is_answered_on_stream() {
    let rig = Rig::start().await;
    let session = rig.prompt_session(&[]).await;
    let header = format!("Mcp-Session-Id: {session}");
    let later = request(8.into(), "prompt later", json!({})).to_string();
    let mut stream = rig.connect(rig.request("POST /mcp", &[&header], &later)).await;
    stream.read_until("text/event-stream").await;
    rig.record.released.notify_one();
    let heard = stream.read_until("0\r\n\r\n").await;
    assert!(heard.contains(r#"data: {"jsonrpc":"2.0","id":8,"result":"at last"}"#), "{heard}");
}

#[tokio::test]
async fn prompt_call_continues_without_its_client() {
    let rig = Rig::start().await;
    let session = rig.prompt_session(&[]).await;
    let header = format!("Mcp-Session-Id: {session}");
    let later = request(8.into(), "prompt later", json!({})).to_string();
    let stream = rig.connect(rig.request("POST /mcp", &[&header], &later)).await;
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    drop(stream);
    rig.record.released.notify_one();
    timeout(PATIENCE, rig.record.finished.notified()).await.unwrap();
}

#[tokio::test]
async fn session_end_cancels_its_prompt_calls() {
    let rig = Rig::start().await;
    let session = rig.prompt_session(&[]).await;
    let header = format!("Mcp-Session-Id: {session}");
    let waiting = request(7.into(), "prompt wait", json!({})).to_string();
    let _stream = rig.connect(rig.request("POST /mcp", &[&header], &waiting)).await;
    timeout(PATIENCE, rig.record.waiting.notified()).await.unwrap();
    assert_eq!(rig.ask("DELETE /mcp", &[&header], "").await.status, 204);
    timeout(PATIENCE, rig.record.cancelled.notified()).await.unwrap();
    rig.wait_for_handlers(0).await;
}
