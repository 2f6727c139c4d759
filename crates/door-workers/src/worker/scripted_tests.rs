//! Scripted agents with behaviour that real ones seldom show.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::config::Config;
use crate::test_router::{Rig, TIMEOUT, names};

/// Codex, except that it does not answer `turn/steer`.
const DEAF_CODEX: &str = r#"
import sys, json
def out(value): print(json.dumps(value), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    method = said.get("method")
    if method == "initialize": out({"id": said["id"], "result": {}})
    elif method == "thread/start": out({"id": said["id"], "result": {"thread": {"id": "t"}}})
    elif method == "turn/start":
        out({"id": said["id"], "result": {"turn": {"id": "u"}}})
        out({"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u"}}})
    elif method == "turn/interrupt":
        out({"id": said["id"], "result": {}})
        out({"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": "u", "status": "interrupted"}}})
"#;

/// An agent whose first message about a prompt is a question.
const ASKING_ACP: &str = r#"
import sys, json
def out(value): print(json.dumps({"jsonrpc": "2.0", **value}), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    method = said.get("method")
    if method == "initialize": out({"id": said["id"], "result": {"protocolVersion": 1}})
    elif method == "session/new": out({"id": said["id"], "result": {"sessionId": "s"}})
    elif method == "session/prompt":
        prompt = said["id"]
        call = {"toolCallId": "c", "title": "List files", "rawInput": {"command": "ls"}}
        options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
        out({"id": 99, "method": "session/request_permission",
             "params": {"sessionId": "s", "toolCall": call, "options": options}})
    elif said.get("id") == 99: out({"id": prompt, "result": {"stopReason": "end_turn"}})
"#;

#[tokio::test]
async fn unconfirmed_steering_times_out() {
    let rig = Rig::with(Config { steer: Duration::from_millis(20), ..Config::default() }).await;
    let mut client = rig.client();
    let job =
        client.launch(json!({ "agent": "codex", "program": ["python3", "-c", DEAF_CODEX, "--"] })).await;
    client.inject(&job, 0, "x").await;
    client.next_of("turn_started").await;
    let steer = json!({ "job_id": job, "node_id": 0, "content": "more" });
    assert_eq!(client.rejected("steer", steer).await, "not_now");
    client.request("interrupt", json!({ "job_id": job, "node_id": 0 })).await;
    assert_eq!(client.next_of("turn_complete").await.data["status"], "interrupted");
    rig.close().await;
}

/// Reports the maximum of tokens, and asks as many questions as its prompt requests.
const BOUNDLESS: &str = r#"
import sys, json
def out(value): print(json.dumps({"jsonrpc": "2.0", **value}), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    method = said.get("method")
    if method == "initialize": out({"id": said["id"], "result": {"protocolVersion": 1}})
    elif method == "session/new": out({"id": said["id"], "result": {"sessionId": "s"}})
    elif method == "session/prompt":
        prompt = said["id"]
        left = int(said["params"]["prompt"][0]["text"])
        for number in range(left):
            out({"id": 1000 + number, "method": "session/request_permission", "params": {"sessionId": "s",
                 "toolCall": {"toolCallId": "c", "title": "More"}, "options": [{"optionId": "no", "kind": "reject_once"}]}})
    elif method == "session/cancel": left = 0
    else: left -= 1
    if method in ("session/prompt", None) and left <= 0:
        most = 2 ** 64 - 1
        out({"id": prompt, "result": {"stopReason": "end_turn", "usage": {"inputTokens": most, "outputTokens": most}}})
"#;

#[tokio::test]
async fn token_overflow_exceeds_budget() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let program = ["python3", "-c", BOUNDLESS];
    let limits = json!({ "total_tokens": 10 });
    let job = client.launch(json!({ "agent": "acp", "program": program, "limits": limits })).await;
    client.inject_all(&job, &["0", "0"]).await;
    client.until_complete(None).await;
    let events = client.until_complete(None).await;
    let used = events.iter().find(|event| event.event == "usage").unwrap();
    assert_eq!(used.data["job_total_tokens"], u64::MAX);
    assert_eq!(
        client.rejected("inject", json!({ "job_id": job, "node_id": 0, "content": "0" })).await,
        "over_budget"
    );
    rig.close().await;
}

#[tokio::test]
async fn excess_questions_are_declined() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "acp", "program": ["python3", "-c", BOUNDLESS] })).await;
    client.injected(&job, 0, "100").await;
    for _ in 0..64 {
        client.next_of("approval_required").await;
    }
    // Each of the others has been decided already.
    let open = client.request("approvals_list", json!({ "job_id": job })).await;
    let open = open.data["approvals"].as_array().unwrap().clone();
    assert_eq!(open.len(), 64);
    for ask in open {
        client.send("approve", json!({ "approval_id": ask["approval_id"], "decision": "decline" })).await;
    }
    assert_eq!(client.next_of("turn_complete").await.data["status"], "completed");
    rig.close().await;
}

#[tokio::test]
async fn question_implies_acceptance() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "acp", "program": ["python3", "-c", ASKING_ACP] })).await;
    let id = client.injected(&job, 0, "x").await;
    let mut events = Vec::new();
    while events.last() != Some(&"approval_required".to_owned()) {
        let event = client.next().await;
        if event.event != "node_status" {
            events.push(event.event);
        }
    }
    assert_eq!(events, ["inject_delivered", "turn_started", "approval_required"]);
    // The hub has the outcome as well, and does not redeliver it.
    let receipt = timeout(TIMEOUT, rig.hub.deliveries().wait_until_settled(id.parse().unwrap()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(receipt.deliveries[0].state.as_str(), "seen");
    let approvals = client.request("approvals_list", json!({})).await;
    let approval = &approvals.data["approvals"][0]["approval_id"];
    client.request("approve", json!({ "approval_id": approval, "decision": "accept" })).await;
    let events = client.until_complete(None).await;
    assert_eq!(names(&events).last(), Some(&"turn_complete"));
    assert_eq!(events.last().unwrap().data["status"], "completed");
    rig.close().await;
}

#[tokio::test]
async fn turn_ends_with_program_despite_children() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let program = ["sh", "-c", "sleep 1000 & echo hi"];
    let job = client.launch(json!({ "agent": "command", "program": program })).await;
    client.inject(&job, 0, "x").await;
    let events = client.until_complete(None).await;
    assert_eq!(events.last().unwrap().data["status"], "completed");
    let answer = events.iter().find(|event| event.event == "assistant").unwrap();
    assert_eq!(answer.data["content"], "hi");
    rig.close().await;
}

#[tokio::test]
async fn down_node_reports_reason() {
    let config = Config { restart: Duration::from_millis(1), restarts: 0, ..Config::default() };
    let rig = Rig::with(config).await;
    let mut client = rig.client();
    let program = ["sh", "-c", "echo no account >&2; exit 1"];
    let job = client.launch(json!({ "agent": "acp", "program": program })).await;
    while client.next_of("node_status").await.data["status"] != "failed" {}
    let status = client.request("job_status", json!({ "job_id": job })).await;
    assert!(status.data["nodes"][0]["detail"].as_str().unwrap().contains("no account"), "{}", status.data);
    rig.close().await;
}

/// Codex in whose conversation another client runs a turn beside ours.
const SHARED_CODEX: &str = r#"
import sys, json
def out(value): print(json.dumps(value), flush=True)
def tell(method, turn, **more): out({"method": method, "params": {"threadId": "t", **turn, **more}})
def other(text):
    theirs = {"turn": {"id": "theirs", "status": "completed"}}
    tell("turn/started", theirs)
    tell("item/agentMessage/delta", {"turnId": "theirs"}, delta=text)
    tell("item/completed", {"turnId": "theirs"}, item={"type": "agentMessage", "id": "x", "text": text})
    tell("turn/completed", theirs)
for line in sys.stdin:
    said = json.loads(line)
    method = said.get("method")
    if method == "initialize": out({"id": said["id"], "result": {}})
    elif method == "thread/start": out({"id": said["id"], "result": {"thread": {"id": "t"}}})
    elif method == "turn/start":
        other("before")
        out({"id": said["id"], "result": {"turn": {"id": "ours"}}})
        tell("turn/started", {"turn": {"id": "ours"}})
        other("within")
        tell("item/completed", {"turnId": "ours"}, item={"type": "agentMessage", "id": "m", "text": "the answer"})
        tell("turn/completed", {"turn": {"id": "ours", "status": "completed"}})
        other("after")
"#;

#[tokio::test]
async fn codex_ignores_turns_of_other_clients() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job =
        client.launch(json!({ "agent": "codex", "program": ["python3", "-c", SHARED_CODEX, "--"] })).await;
    for _ in 0..2 {
        client.inject(&job, 0, "x").await;
        let events = client.until_complete(None).await;
        let expected = ["inject_ack", "inject_delivered", "turn_started", "assistant", "turn_complete"];
        assert_eq!(names(&events), expected);
        let answer = events.iter().find(|event| event.event == "assistant").unwrap();
        assert_eq!(answer.data["content"], "the answer");
    }
    rig.close().await;
}
