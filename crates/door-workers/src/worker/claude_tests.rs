//! Claude Code needs an account, so a script simulates it with the frames of its documentation.

use serde_json::json;

use crate::client::Received;
use crate::test_router::{Rig, names};

const CLAUDE: &str = r#"
turn=0
while read -r line; do
  case "$line" in *'"type":"user"'*) ;; *) continue ;; esac
  turn=$((turn + 1))
  id=$(printf '%s' "$line" | sed 's/.*"uuid":"\([^"]*\)".*/\1/')
  echo '{"type":"system","subtype":"init","session_id":"s1","model":"m"}'
  echo '{"type":"user","isReplay":true,"uuid":"'"$id"'","message":{"role":"user","content":"x"}}'
  text="turn $turn"
  case "$line" in
    *ASK*)
      echo '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]}}'
      echo '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"t1"}}'
      read -r answer
      case "$answer" in *'"behavior":"allow"'*'"updatedInput":{"command":"ls"}'*) text=allowed ;; *) text=denied ;; esac
      echo '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"a b"}]}}' ;;
    *WAIT*)
      echo '{"type":"stream_event","event":{"type":"message_start"}}'
      read -r answer
      case "$answer" in *'"subtype":"interrupt"'*) ;; *) exit 9 ;; esac
      echo '{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s1"}'
      continue ;;
    *DIE*) echo 'no more' >&2; exit 7 ;;
  esac
  echo '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"'"$text"'"}}}'
  echo '{"type":"assistant","message":{"content":[{"type":"text","text":"'"$text"'"}]}}'
  echo '{"type":"result","subtype":"success","is_error":false,"result":"'"$text"'","session_id":"s1","usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5}}'
done
"#;

fn answer(events: &[Received]) -> &str {
    events.iter().find(|event| event.event == "assistant").unwrap().data["content"].as_str().unwrap()
}

#[tokio::test]
async fn claude_answers_requests_approval_and_resumes() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "claude", "program": ["sh", "-c", CLAUDE, "claude"] })).await;
    client.inject(&job, 0, "hello").await;
    let events = client.until_complete(None).await;
    let expected = [
        "inject_ack",
        "inject_delivered",
        "turn_started",
        "assistant_delta",
        "assistant",
        "usage",
        "turn_complete",
    ];
    assert_eq!(names(&events), expected);
    let usage = &events.iter().find(|event| event.event == "usage").unwrap().data;
    assert_eq!((&usage["total_tokens"], &usage["cached_input_tokens"]), (&json!(12), &json!(4)));
    for (decision, expected) in [("accept", "allowed"), ("decline", "denied")] {
        client.inject(&job, 0, "ASK").await;
        let approval_request = client.next_of("approval_required").await;
        assert_eq!(
            (&approval_request.data["kind"], &approval_request.data["command"]),
            (&json!("tool"), &json!("ls"))
        );
        let approve = json!({ "approval_id": approval_request.data["approval_id"], "decision": decision });
        client.request("approve", approve).await;
        let events = client.until_complete(None).await;
        assert_eq!(answer(&events), expected);
        let done = events.iter().find(|event| event.event == "command_completed").unwrap();
        assert_eq!((&done.data["command"], &done.data["output"]), (&json!("Bash: ls"), &json!("a b")));
    }
    client.inject(&job, 0, "WAIT").await;
    client.next_of("turn_started").await;
    client.request("interrupt", json!({ "job_id": job, "node_id": 0 })).await;
    assert_eq!(client.next_of("turn_complete").await.data["status"], "interrupted");
    client.inject(&job, 0, "DIE").await;
    let end = client.next_of("turn_complete").await;
    assert_eq!(end.data["status"], "worker_lost");
    assert!(end.data["error"].as_str().unwrap().contains("no more"), "{}", end.data);
    client.inject(&job, 0, "hello again").await;
    assert_eq!(answer(&client.until_complete(None).await), "turn 1");
    rig.close().await;
}

#[tokio::test]
async fn unanswered_question_is_declined_on_timeout() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let launch = json!({
        "agent": "claude", "program": ["sh", "-c", CLAUDE, "claude"], "limits": { "approval_seconds": 1 },
    });
    let job = client.launch(launch).await;
    client.inject(&job, 0, "ASK").await;
    let resolved = client.next_of("approval_resolved").await;
    assert_eq!((&resolved.data["decision"], &resolved.data["by"]), (&json!("decline"), &json!("timeout")));
    assert_eq!(answer(&client.until_complete(None).await), "denied");
    rig.close().await;
}
