use std::path::Path;

use serde_json::json;
use test_support::process::command;
use test_support::{files, tools};

use crate::config::Config;
use crate::test_router::Rig;

fn repository(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    files::put(folder.join("a.txt"), "a");
    for args in [
        &["init", "-q"][..],
        &["add", "."],
        &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"],
    ] {
        tools::run(command("git").current_dir(folder).args(args)).unwrap();
    }
}

#[tokio::test]
async fn worktree_with_unmerged_commit_stays() {
    let rig = Rig::new().await;
    let project = rig.folder.path().join("project");
    repository(&project);
    let mut client = rig.client();
    for (script, stays) in [
        ("git -c user.name=n -c user.email=e commit -q --allow-empty -m work", true),
        ("git -c user.name=n -c user.email=e commit -q --allow-empty -m work && git branch kept", false),
        ("true", false),
    ] {
        let launch = json!({ "agent": "command", "program": ["sh", "-c", script], "folders": "worktree", "cwd": "project" });
        let job = client.launch(launch).await;
        client.inject(&job, 0, "x").await;
        assert_eq!(client.until_complete(None).await.last().unwrap().data["status"], "completed");
        let tree = rig.folder.path().join("workers").join(&job).join("node-0");
        assert!(tree.join("a.txt").exists());
        client.request("terminate", json!({ "job_id": job })).await;
        assert_eq!(tree.join("a.txt").exists(), stays, "{script}");
    }
    rig.close().await;
}

#[tokio::test]
async fn failed_launch_removes_worktrees() {
    let rig = Rig::new().await;
    let project = rig.folder.path().join("project");
    repository(&project);
    let taken = rig.folder.path().join("workers/half/node-1");
    std::fs::create_dir_all(&taken).unwrap();
    files::put(taken.join("file"), "of somebody");
    let launch =
        json!({ "agent": "echo", "nodes": 2, "job_id": "half", "folders": "worktree", "cwd": "project" });
    assert_eq!(rig.client().rejected("launch", launch).await, "bad_field");
    assert!(!rig.folder.path().join("workers/half/node-0").exists());
    assert!(taken.join("file").exists());
    rig.close().await;
}

#[tokio::test]
async fn unsupported_settings_are_rejected() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    for (agent, setting, value) in [
        ("claude", "sandbox", "read-only"),
        ("acp", "model", "large"),
        ("acp", "instructions", "be brief"),
        ("gemini", "sandbox", "read-only"),
        ("codex-exec", "approval_policy", "untrusted"),
        ("codex-exec", "instructions", "be brief"),
        ("codex", "input", "argument"),
        ("command", "model", "large"),
        ("echo", "instructions", "be brief"),
    ] {
        let mut launch = json!({ "agent": agent, "program": ["sh"] });
        launch[setting] = json!(value);
        client.send("launch", launch).await;
        let rejected = client.next_of("command_rejected").await;
        assert_eq!(rejected.data["field"], format!("payload.{setting}"), "{}", rejected.line);
        assert!(rejected.data["reason"].as_str().unwrap().contains(agent), "{}", rejected.line);
    }
    client.launch(json!({ "agent": "command", "program": ["echo"], "input": "argument" })).await;
    rig.close().await;
}

#[tokio::test]
async fn invalid_settings_are_rejected_before_launch() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    for (launch, field) in [
        (json!({ "program": ["sh", "-c", "a\0b"] }), "program"),
        (json!({ "args": ["a\0b"] }), "args"),
        (json!({ "env": { "": "x" } }), "env"),
        (json!({ "env": { "A=B": "x" } }), "env"),
        (json!({ "env": { "A": "\0" } }), "env"),
        (json!({ "limits": { "turn_seconds": 0 } }), "limits.turn_seconds"),
        (json!({ "limits": { "delivery_seconds": 0 } }), "limits.delivery_seconds"),
    ] {
        let mut whole = json!({ "agent": "command", "program": ["sh"], "folders": "per_node" });
        whole.as_object_mut().unwrap().extend(launch.as_object().unwrap().clone());
        client.send("launch", whole).await;
        let rejected = client.next_of("command_rejected").await;
        assert_eq!(rejected.data["field"], format!("payload.{field}"), "{}", rejected.line);
    }
    assert_eq!(std::fs::read_dir(rig.folder.path().join("workers")).unwrap().count(), 0);
    rig.close().await;
}

#[tokio::test]
async fn missing_program_is_rejected() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let no_path = json!({ "PATH": rig.folder.path() });
    for launch in [
        json!({ "agent": "command", "program": ["/nowhere/at-all"] }),
        json!({ "agent": "command", "program": ["./nothing"] }),
        json!({ "agent": "acp", "program": ["no-such-program-anywhere"] }),
        json!({ "agent": "codex", "env": no_path }),
        json!({ "agent": "command", "program": ["sh"], "env": no_path }),
    ] {
        assert_eq!(client.rejected("launch", launch.clone()).await, "cannot_start", "{launch}");
    }
    let own = rig.folder.path().join("own");
    files::put(&own, "#!/bin/sh\necho there\n");
    files::chmod(&own, 0o755);
    for launch in [
        json!({ "agent": "command", "program": ["./own"] }),
        json!({ "agent": "command", "program": ["own"], "env": no_path }),
    ] {
        let job = client.launch(launch).await;
        client.inject(&job, 0, "x").await;
        assert_eq!(client.next_of("assistant").await.data["content"], "there");
    }
    rig.close().await;
}

#[tokio::test]
async fn forgotten_job_removes_logs_but_not_work() {
    let rig = Rig::with(Config { history: 0, ..Config::default() }).await;
    let mut client = rig.client();
    for (script, is_left) in [("echo log >&2", false), ("echo log >&2; echo work > made", true)] {
        let program = ["sh", "-c", script];
        let job =
            client.launch(json!({ "agent": "command", "program": program, "folders": "per_node" })).await;
        client.inject(&job, 0, "x").await;
        client.until_complete(None).await;
        let folder = rig.folder.path().join("workers").join(&job);
        assert!(folder.join("node-0.log").exists());
        client.send("terminate", json!({ "job_id": job })).await;
        // This answer arrives after the other command is done.
        client.request("jobs_list", json!({})).await;
        assert!(!folder.join("node-0.log").exists());
        assert_eq!((folder.join("node-0/made").exists(), folder.exists()), (is_left, is_left));
    }
    rig.close().await;
}
