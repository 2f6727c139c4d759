use serde_json::json;
use switchboard_core::Kind;

use super::*;
use crate::terminal::permission::EXECUTE;
use crate::test_workspace::{TestWorkspace, agent, name, outgoing};
use crate::workspace::OutgoingMessage;

const SHORT: Duration = Duration::from_millis(300);

async fn execute(test: &TestWorkspace, text: &str) -> ExecuteRequest {
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let kind = Kind::parse(EXECUTE).unwrap();
    test.send(OutgoingMessage { kind, ..outgoing("claude", "codex", text) }).await;
    executor.next().await.unwrap()
}

/// Acts as the host: waits for a request and changes the file.
async fn host(test: &TestWorkspace, act: impl FnOnce(&mut Value)) -> Value {
    loop {
        if test.path(FILE).exists() {
            let mut file = test.json(FILE);
            if let Some(request) = file["requests"].get(0).cloned() {
                act(&mut file);
                let lock = DirLock::acquire(test.workspace.tree().root(), FILE, LockOptions::default());
                test.write("bridge.json.host", file.to_string());
                crate::test_workspace::move_carelessly(&test.path("bridge.json.host"), &test.path(FILE));
                drop(lock);
                return request;
            }
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn host_types_and_reports_it() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let execute = execute(&test, "cargo test").await;
    let id = ids::native_id(&execute.message);
    let answer = json!({ "id": id, "status": "executed" });
    let act = |file: &mut Value| {
        file["requests"] = json!([]);
        file["responses"] = json!([answer, { "id": "msg_other", "status": "failed" }]);
        file["mine"] = json!("kept");
    };
    let (codex, patience) = (agent("codex"), Duration::from_secs(30));
    let (typed, request) = tokio::join!(
        type_line_within(&test.workspace, &codex, &execute, "cargo test", patience),
        host(&test, act)
    );
    assert_eq!(typed, Ok(()));
    assert_eq!((&request["terminal"], &request["input"]), (&json!("codex"), &json!("cargo test")));
    assert_eq!(
        (&request["source"]["actor"], &request["source"]["messageId"], &request["source"]["allowBroadcast"]),
        (&json!("claude"), &json!(id), &json!(false))
    );
    let left = json!({ "version": 1, "requests": [], "responses": [{ "id": "msg_other", "status": "failed" }], "mine": "kept" });
    assert_eq!(test.json(FILE), left);
}

#[tokio::test]
async fn failing_or_missing_host_is_a_failure() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let execute = execute(&test, "x").await;
    let id = ids::native_id(&execute.message);
    let codex = agent("codex");
    let nobody = type_line_within(&test.workspace, &codex, &execute, "x", SHORT).await;
    assert_eq!(nobody, Err("no host took it from bridge.json within 0 s".to_owned()));
    assert_eq!(test.json(FILE)["requests"], json!([]));
    let refuses = |file: &mut Value| {
        file["responses"] = json!([{ "id": id, "status": "failed", "error": "no such terminal" }]);
    };
    let patience = Duration::from_secs(30);
    let (typed, _) = tokio::join!(
        type_line_within(&test.workspace, &codex, &execute, "x", patience),
        host(&test, refuses)
    );
    assert_eq!(typed, Err("its host said 'failed': no such terminal".to_owned()));
    let takes = |file: &mut Value| file["requests"] = json!([]);
    // Long enough for the host to read it.
    let patience = Duration::from_secs(3);
    let (typed, _) =
        tokio::join!(type_line_within(&test.workspace, &codex, &execute, "x", patience), host(&test, takes));
    assert!(typed.unwrap_err().contains("may have been typed"));
}

#[tokio::test]
async fn full_or_damaged_bridge_file_stays() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let execute = execute(&test, "x").await;
    let full: Vec<Value> = (0..MAX_REQUESTS).map(|number| json!({ "id": number.to_string() })).collect();
    test.write(FILE, json!({ "requests": full }).to_string());
    let codex = agent("codex");
    let error = type_line_within(&test.workspace, &codex, &execute, "x", SHORT).await.unwrap_err();
    assert!(error.starts_with("64 requests wait"), "{error}");
    assert_eq!(test.json(FILE)["requests"].as_array().unwrap().len(), MAX_REQUESTS);
    test.write(FILE, "no JSON");
    let error = type_line_within(&test.workspace, &codex, &execute, "x", SHORT).await.unwrap_err();
    assert!(error.starts_with("bridge.json is not valid"), "{error}");
    assert_eq!(test.bytes(FILE), b"no JSON");
}
