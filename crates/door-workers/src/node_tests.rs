use std::time::Duration;

use serde_json::json;
use test_support::process::command;
use test_support::tools;

use crate::config::Config;
use crate::test_router::{Rig, names};

#[tokio::test]
async fn failed_worker_restarts_with_next_injection() {
    let config = Config { restart: Duration::from_millis(1), restarts: 2, ..Config::default() };
    let rig = Rig::with(config).await;
    let mut client = rig.client();
    let job = client
        .launch(json!({ "agent": "acp", "program": ["sh", "-c", "echo no account >&2; exit 1"] }))
        .await;
    client.injected(&job, 0, "x").await;
    let events = client.until_complete(None).await;
    let end = events.last().unwrap();
    assert_eq!(end.data["status"], "failed");
    assert!(end.data["error"].as_str().unwrap().contains("no account"), "{}", end.data);
    assert!(names(&events).ends_with(&["inject_failed", "turn_complete"]));
    assert!(client.next_of("node_status").await.data["status"] == "failed");
    client.injected(&job, 0, "once more").await;
    assert_eq!(client.until_complete(None).await.last().unwrap().data["status"], "failed");
    rig.close().await;
}

#[tokio::test]
async fn agent_without_acceptance_times_out() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let launch = json!({ "agent": "claude", "program": ["sh", "-c", "sleep 1000", "sh"], "limits": { "delivery_seconds": 1 } });
    let job = client.launch(launch).await;
    client.injected(&job, 0, "x").await;
    let events = client.until_complete(None).await;
    assert_eq!(events.last().unwrap().data["status"], "timeout");
    assert!(names(&events).ends_with(&["inject_failed", "turn_complete"]));
    rig.close().await;
}

#[tokio::test]
async fn agent_without_ready_times_out() {
    let config = Config { restart: Duration::from_millis(1), restarts: 1, ..Config::default() };
    let rig = Rig::with(config).await;
    let mut client = rig.client();
    let launch = json!({ "agent": "acp", "program": ["sleep", "1000"], "limits": { "delivery_seconds": 1 } });
    let job = client.launch(launch).await;
    client.injected(&job, 0, "x").await;
    let events = client.until_complete(None).await;
    let end = events.last().unwrap();
    assert_eq!(end.data["status"], "failed");
    assert!(end.data["error"].as_str().unwrap().contains("not ready"), "{}", end.data);
    rig.close().await;
}

#[tokio::test]
async fn nodes_get_own_folders_on_request() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let launch = json!({ "agent": "command", "program": ["pwd"], "nodes": 2, "folders": "per_node" });
    let job = client.launch(launch).await;
    let mut folders = Vec::new();
    for node in 0..2 {
        client.inject(&job, node, "x").await;
        folders.push(client.next_of("assistant").await.data["content"].as_str().unwrap().to_owned());
    }
    assert!(folders[0].ends_with("/node-0") && folders[1].ends_with("/node-1"), "{folders:?}");
    let project = rig.folder.path().join("project");
    std::fs::create_dir_all(&project).unwrap();
    assert_eq!(
        client.rejected("launch", json!({ "agent": "echo", "folders": "worktree", "cwd": "project" })).await,
        "bad_field"
    );
    test_support::files::put(project.join("a.txt"), "a");
    for args in [
        &["init", "-q"][..],
        &["add", "."],
        &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"],
    ] {
        tools::run(command("git").current_dir(&project).args(args)).unwrap();
    }
    let launch = json!({ "agent": "command", "program": ["ls"], "folders": "worktree", "cwd": "project" });
    let job = client.launch(launch).await;
    client.inject(&job, 0, "x").await;
    assert_eq!(client.next_of("assistant").await.data["content"], "a.txt");
    let status = client.request("job_status", json!({ "job_id": job })).await;
    let tree = std::path::PathBuf::from(status.data["nodes"][0]["cwd"].as_str().unwrap());
    assert!(tree.join("a.txt").exists());
    client.send("terminate", json!({ "job_id": job })).await;
    client.next_of("job_terminated").await;
    assert!(!tree.exists(), "an unchanged worktree stays");
    rig.close().await;
}

#[tokio::test]
async fn program_answering_early_gets_full_prompt() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "command", "program": ["cat"] })).await;
    let prompt = "many words to be said back\n".repeat(30_000);
    client.inject(&job, 0, &prompt).await;
    let events = client.until_complete(None).await;
    let answer = events.iter().find(|event| event.event == "assistant").unwrap();
    assert_eq!(answer.data["content"].as_str().unwrap(), prompt.trim_end());
    rig.close().await;
}
