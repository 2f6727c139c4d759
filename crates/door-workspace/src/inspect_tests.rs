use std::os::unix::fs::PermissionsExt;

use jiff::SignedDuration;
use switchboard_sys::lock::{DirLock, LockOptions};

use super::*;
use crate::test_workspace::{TestWorkspace, agent, inbox_file, message, name, outgoing};

async fn findings(t: &TestWorkspace) -> Vec<Finding> {
    let findings = inspect(&t.workspace).await.unwrap();
    findings.into_iter().filter(|finding| *finding != Finding::NetworkMount).collect()
}

#[tokio::test]
async fn healthy_workspace_has_no_findings() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let id = t.send(outgoing("claude", "codex", "hello")).await;
    t.send(outgoing("claude", "human", "hello")).await;
    t.send(outgoing("claude", "all", "hello")).await;
    t.put("codex", &message("msg_1_a", "x", "codex", "dropped"));
    t.workspace.scan().await.unwrap();
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    t.workspace.rename(name("claude"), name("opus")).await.unwrap();
    assert_eq!(findings(&t).await, []);
}

#[tokio::test]
async fn inspection_finds_all_faults_and_changes_nothing() {
    let t = TestWorkspace::new(&["codex"]).await;
    let missing = t.send(outgoing("claude", "codex", "missing")).await;
    let changed = t.send(outgoing("claude", "codex", "changed")).await;
    let linked = t.send(outgoing("claude", "codex", "linked")).await;
    std::fs::remove_file(t.path(&inbox_file("codex", missing))).unwrap();
    t.write(&inbox_file("codex", changed), "other");
    std::fs::remove_file(t.path(&inbox_file("codex", linked))).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", t.path(&inbox_file("codex", linked))).unwrap();
    t.put("codex", &message("msg_1_new", "x", "codex", "never taken in"));
    t.put("nobody", &message("msg_1_a", "x", "nobody", "for nobody"));
    t.write("inbox/codex/.tmp-1-x-2", "half");
    t.write("inbox/codex/msg_1_a.json.conflict.00000001", "aside");
    t.write("inbox/CON/x", "");
    t.write("inbox/file", "");
    t.write("state.json", "{");
    let before = (t.names("inbox"), t.names("inbox/codex"), t.bytes("state.json"));
    let not_taken_in = |path: &str, reason: Option<&str>| Finding::NotIngested {
        path: path.into(),
        reason: reason.map(str::to_owned),
    };
    let expected = [
        Finding::MissingFile { path: inbox_file("codex", missing) },
        Finding::ChangedFile { path: inbox_file("codex", changed) },
        Finding::ChangedFile { path: inbox_file("codex", linked) },
        Finding::StaleTemp { path: "inbox/codex/.tmp-1-x-2".into() },
        not_taken_in("inbox/codex/msg_1_new.json", None),
        not_taken_in("inbox/codex/msg_1_a.json.conflict.00000001", None),
        not_taken_in("inbox/nobody/msg_1_a.json", None),
        not_taken_in("inbox/CON", Some("'CON' is a device name on Windows; choose another")),
        not_taken_in(
            "inbox/file",
            Some(&format!(
                "{} is not a directory but a file",
                t.path("inbox/file").canonicalize().unwrap().display()
            )),
        ),
        Finding::DamagedState {
            problem: "the text ends within an object; a '}' is missing (at character 1)".into(),
        },
    ];
    let found = findings(&t).await;
    for finding in &expected {
        assert!(found.contains(finding), "{finding:?} is missing from {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    assert_eq!((t.names("inbox"), t.names("inbox/codex"), t.bytes("state.json")), before);
}

#[tokio::test]
async fn rejected_file_is_reported_with_its_reason() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.write("inbox/codex/msg_1_a.json", "");
    t.set_age("inbox/codex/msg_1_a.json", SignedDuration::from_mins(1));
    t.workspace.scan().await.unwrap();
    let reason = Some("the file is empty".to_owned());
    assert_eq!(
        findings(&t).await,
        [Finding::NotIngested { path: "inbox/codex/msg_1_a.json".into(), reason }]
    );
}

#[tokio::test]
async fn exposed_files_are_found() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.write("auth_token", "secret");
    let modes = [("auth_token", 0o640), ("state.json", 0o666), ("hub.db", 0o620), ("", 0o777)];
    for (below, mode) in modes {
        std::fs::set_permissions(t.path(below), PermissionsExt::from_mode(mode)).unwrap();
    }
    let exposed =
        |path: &str, mode: &str| Finding::Exposed { path: path.into(), problem: format!("has mode {mode}") };
    let expected = [
        exposed(".switchboard", "777"),
        exposed("hub.db", "620"),
        exposed("state.json", "666"),
        exposed("auth_token", "640"),
    ];
    assert_eq!(findings(&t).await, expected);
}

#[tokio::test]
async fn stale_lock_is_found() {
    let t = TestWorkspace::new(&["codex"]).await;
    let lock = DirLock::acquire(t.workspace.tree().root(), "state.json", LockOptions::default()).unwrap();
    assert_eq!(findings(&t).await, [], "one that is held is no finding");
    t.set_age("state.json.lock", SignedDuration::from_secs(12));
    assert_eq!(findings(&t).await, [Finding::StaleLock { path: "state.json.lock".into() }]);
    drop(lock);
}

#[tokio::test]
async fn former_names_folder_is_expected_empty() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    t.send(outgoing("claude", "codex", "waits")).await;
    t.workspace.rename(name("codex"), name("gpt")).await.unwrap();
    assert!(t.path("inbox/codex").exists());
    assert_eq!(findings(&t).await, []);
}

#[tokio::test]
async fn readable_files_are_found_in_enterable_folders() {
    let t = TestWorkspace::new(&["codex"]).await;
    let mode = |below: &str, mode: u32| {
        std::fs::set_permissions(t.path(below), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("inbox", 0o755);
    mode("hub.db", 0o644);
    assert_eq!(findings(&t).await, [], "other users cannot enter the folder");
    mode("", 0o755);
    let readable = |path: &str, mode: &str| Finding::Readable {
        path: path.into(),
        problem: format!("has mode {mode}: other users can read it"),
    };
    assert_eq!(findings(&t).await, [readable("hub.db", "644"), readable("inbox", "755")]);
}

#[tokio::test]
async fn invalid_agent_name_is_reported() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.write("state.json", r#"{"chatAgents": {"a/b": {}}}"#);
    let found = findings(&t).await;
    let [Finding::NotIngested { path, reason: Some(_) }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(path, "'a/b' in state.json");
}
