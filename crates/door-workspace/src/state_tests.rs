use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use switchboard_core::{AgentId, PresenceState};
use switchboard_sys::process::Spawn;
use test_support::tools;

use super::*;
use crate::test_workspace::{TestWorkspace, agent as agent_id, name, outgoing};

const INITIAL: &str = include_str!("../../../fixtures/workspace/state_initial.json");
const FULL: &str = include_str!("../../../fixtures/workspace/state.json");

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn time_of(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[tokio::test]
async fn initial_state_matches_protocol_and_is_private() {
    use std::os::unix::fs::MetadataExt;
    let t = TestWorkspace::new(&[]).await;
    assert!(!t.path("state.json").exists());
    t.workspace.state().create().unwrap();
    assert_eq!(t.json("state.json"), value(INITIAL));
    assert_eq!(std::fs::metadata(t.path("state.json")).unwrap().mode() & 0o777, 0o600);
    t.write("state.json", FULL);
    t.workspace.state().create().unwrap();
    assert_eq!(t.bytes("state.json"), FULL.as_bytes(), "what is there stays");
}

#[tokio::test]
async fn unknown_keys_are_retained() {
    let t = TestWorkspace::new(&[]).await;
    t.write("state.json", FULL);
    t.workspace.state().update(|state| state.insert("added".into(), 1.into()).is_none()).unwrap();
    let mut expected = value(FULL);
    expected["added"] = 1.into();
    assert_eq!(t.json("state.json"), expected);
    let left: Vec<String> = t.names("").into_iter().filter(|name| name.starts_with("state")).collect();
    assert_eq!(left, ["state.json"], "no lock, no temporary file");
}

#[tokio::test]
async fn unchanged_state_is_not_written() {
    let t = TestWorkspace::new(&[]).await;
    t.write("state.json", "{\"terminals\":{},  \"x\":1}");
    t.workspace.state().update(|_| false).unwrap();
    assert_eq!(t.bytes("state.json"), b"{\"terminals\":{},  \"x\":1}");
}

#[tokio::test]
async fn missing_and_null_sections_are_filled() {
    let t = TestWorkspace::new(&[]).await;
    t.write("state.json", r#"{"chatAgents":null,"custom":null}"#);
    t.workspace.register(switchboard_hub::Registration::mailbox(name("codex"))).await.unwrap();
    let state = t.json("state.json");
    assert_eq!(state["chatAgents"]["codex"]["type"], "chat");
    assert_eq!(state["session"]["status"], "IDLE");
    assert_eq!((state.as_object().unwrap().contains_key("custom"), &state["custom"]), (true, &Value::Null));
}

#[tokio::test]
async fn damaged_state_is_moved_aside() {
    let damaged = [
        "",
        "{",
        "[]",
        "null",
        "\0\0\0",
        r#"{"chatAgents":[]}"#,
        r#"{"terminals":"x"}"#,
        "{\"teams\":1}",
        r#"{"session":[]}"#,
    ];
    for content in damaged {
        let t = TestWorkspace::new(&[]).await;
        t.write("state.json", content);
        assert!(matches!(t.workspace.state().read(), Err(WorkspaceError::DamagedState { .. })), "{content}");
        assert_eq!(t.bytes("state.json"), content.as_bytes(), "{content}: reading changes nothing");
        t.workspace.register(switchboard_hub::Registration::mailbox(name("codex"))).await.unwrap();
        assert_eq!(t.json("state.json")["chatAgents"]["codex"]["status"], "active", "{content}");
        let aside: Vec<String> =
            t.names("").into_iter().filter(|name| name.starts_with("state.json.corrupt.")).collect();
        assert_eq!(aside.len(), 1, "{content}");
        assert_eq!(t.bytes(&aside[0]), content.as_bytes(), "{content}");
    }
}

#[tokio::test]
async fn two_damaged_states_are_both_retained() {
    let t = TestWorkspace::new(&[]).await;
    for content in ["first", "second"] {
        t.write("state.json", content);
        t.set_age("state.json", SignedDuration::from_hours(1));
        t.workspace.state().update(|_| true).unwrap();
    }
    let aside: Vec<String> =
        t.names("").into_iter().filter(|name| name.starts_with("state.json.corrupt.")).collect();
    assert_eq!(aside.len(), 2);
    assert_eq!([t.bytes(&aside[0]), t.bytes(&aside[1])], [b"first".to_vec(), b"second".to_vec()]);
}

#[tokio::test]
async fn workspace_opens_with_any_state_json() {
    for case in ["damaged", "a link", "a folder"] {
        let t = TestWorkspace::new(&["codex"]).await;
        let t = t
            .reopen_after(|root| {
                std::fs::remove_file(root.join("state.json")).unwrap();
                match case {
                    "damaged" => crate::test_workspace::write_carelessly(&root.join("state.json"), "{"),
                    "a link" => std::os::unix::fs::symlink("/etc/passwd", root.join("state.json")).unwrap(),
                    _ => std::fs::create_dir(root.join("state.json")).unwrap(),
                }
            })
            .await;
        let id = t.send(outgoing("claude", "codex", "hello")).await;
        assert_eq!(t.states(id).await, ["delivered"], "{case}");
    }
}

#[test]
fn eight_concurrent_writers_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::new(Dir::open_root(folder.path()).unwrap());
    let count = |state: &mut Map<String, Value>| {
        let counted = state.get("count").and_then(Value::as_u64).unwrap_or(0);
        state.insert("count".into(), (counted + 1).into());
        true
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| state.update(count).unwrap()));
        }
    });
    let bytes = std::fs::read(folder.path().join("state.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["count"], 40);
}

#[test]
fn records_of_other_programs_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    crate::test_workspace::write_carelessly(&folder.path().join("state.json"), FULL);
    let known = StateFile::new(Dir::open_root(folder.path()).unwrap()).read().unwrap();
    let coder = AgentState {
        name: name("coder 1"),
        role: Some("coder 1".into()),
        team: Some(name("backend")),
        status: Some("working".into()),
        message: Some("on the parser".into()),
        // A number, as JavaScript counts.
        last_seen: Some(time_of("2025-01-01T00:00:00Z")),
    };
    let claude = AgentState {
        name: name("Claude"),
        role: None,
        team: None,
        status: Some("away".into()),
        message: None,
        last_seen: Some(time_of("2025-01-01T00:01:00Z")),
    };
    let backend = TeamRecord {
        id: name("backend"),
        title: "Backend".into(),
        composite: false,
        created_at: time_of("2025-01-01T00:00:00Z"),
    };
    assert_eq!(known, Known { agents: vec![coder, claude], teams: vec![backend] });
}

#[tokio::test]
async fn agents_of_other_programs_are_imported() {
    let t = TestWorkspace::new(&["codex"]).await;
    let mut state = value(FULL);
    state["chatAgents"]["../evil"] = json!({ "type": "chat" });
    state["chatAgents"]["switchboard"] = json!({ "type": "chat" });
    state["chatAgents"]["no record"] = json!("text");
    t.write("state.json", state.to_string());
    t.workspace.import_state().await.unwrap();
    let directory = t.workspace.hub().directory().await.unwrap();
    let names: Vec<String> = directory.agents().map(|agent| agent.id.to_string()).collect();
    assert_eq!(names, ["Claude", "coder 1", "codex"]);
    let coder = directory.agent(&agent_id("coder 1")).unwrap();
    assert_eq!((coder.role.as_deref(), coder.team.clone()), (Some("coder 1"), Some(name("backend"))));
    assert_eq!(directory.team(&name("backend")).unwrap().title, "Backend");
    let presence = t.workspace.hub().agents().presence(&agent_id("coder 1"));
    assert_eq!(presence.state, PresenceState::Offline, "heard in 2025");
    assert_eq!(presence.status.as_deref(), Some("working"));
    let id = t.send(outgoing("codex", "coder 1", "hello")).await;
    assert_eq!(t.states(id).await, ["delivered"]);
}

#[tokio::test]
async fn status_uses_the_records_own_keys() {
    let t = TestWorkspace::new(&[]).await;
    t.write("state.json", FULL);
    t.workspace.import_state().await.unwrap();
    let now = iso(t.clock.now());
    t.workspace.set_status(&agent_id("CODER 1"), "thinking", Some("hard")).await.unwrap();
    t.workspace.set_status(&agent_id("claude"), "active", None).await.unwrap();
    let mut expected = value(FULL);
    let terminal = &mut expected["terminals"]["coder 1"];
    terminal["statusState"] = "thinking".into();
    terminal["statusMessage"] = "hard".into();
    terminal["statusUpdatedAt"] = now.clone().into();
    terminal["lastSeen"] = now.clone().into();
    let chat = &mut expected["chatAgents"]["Claude"];
    chat["status"] = "active".into();
    chat["statusMessage"] = Value::Null;
    chat["lastSeen"] = now.into();
    assert_eq!(t.json("state.json"), expected);
    assert_eq!(t.workspace.hub().agents().presence(&agent_id("coder 1")).state, PresenceState::Awake);
}

#[tokio::test]
async fn heartbeat_is_written_at_most_every_minute() {
    let t = TestWorkspace::new(&["codex"]).await;
    let codex = AgentId::local(name("codex"));
    let seen = |t: &TestWorkspace| t.json("state.json")["chatAgents"]["codex"]["lastSeen"].clone();
    assert_eq!(seen(&t), Value::Null, "being registered is no sign of life");
    t.workspace.record_heartbeat(&codex).await;
    let first = seen(&t);
    assert_eq!(first, iso(t.clock.now()));
    t.clock.advance(SignedDuration::from_secs(59));
    t.workspace.record_heartbeat(&codex).await;
    assert_eq!(seen(&t), first);
    t.clock.advance(SignedDuration::from_secs(2));
    t.workspace.record_heartbeat(&codex).await;
    assert_eq!(seen(&t), iso(t.clock.now()));
    // Another process holds the lock: a heartbeat neither waits long for it nor fails.
    let _lock = DirLock::acquire(t.workspace.tree().root(), FILE, LockOptions::default()).unwrap();
    t.clock.advance(SignedDuration::from_mins(2));
    t.workspace.record_heartbeat(&codex).await;
    assert_ne!(seen(&t), iso(t.clock.now()));
}

#[tokio::test]
async fn agents_and_teams_match_the_protocol() {
    let t = TestWorkspace::new(&[]).await;
    let now = iso(t.clock.now());
    t.workspace.create_team(name("crew"), Some("The Crew".into()), false).await.unwrap();
    let registration = switchboard_hub::Registration {
        role: Some("reviewer".into()),
        team: Some(name("crew")),
        ..switchboard_hub::Registration::mailbox(name("codex"))
    };
    t.workspace.register(registration).await.unwrap();
    let state = t.json("state.json");
    let record = json!({
        "type": "chat", "interface": "cli", "role": "reviewer", "status": "active", "statusMessage": null,
        "capabilities": ["chat"], "friendlyName": "codex", "icon": "comment-discussion", "color": "purple",
        "registeredAt": now, "lastSeen": null, "team": "crew", "activeWorkflow": null, "currentStep": 0,
        "activeWorkflowPhase": 0, "activePersona": null, "workflowToolInvocations": [],
    });
    assert_eq!(state["chatAgents"], json!({ "codex": record }));
    let crew = json!({
        "name": "The Crew", "isComposite": false, "members": ["codex"], "capabilities": [], "createdAt": now,
    });
    assert_eq!(state["teams"], json!({ "crew": crew }));
    t.workspace.assign(name("codex"), None).await.unwrap();
    let state = t.json("state.json");
    assert_eq!(
        (&state["teams"]["crew"]["members"], state["chatAgents"]["codex"].get("team")),
        (&json!([]), None)
    );
}

/// A hundred rounds of lock, read, count, rename, unlock, like a Node program.
const NODE: &str = "
const fs = require('fs');
const lockfile = require('proper-lockfile');
(async () => {
  const file = process.argv[1];
  for (let round = 0; round < 100; round++) {
    const release = await lockfile.lock(file, { retries: { retries: 200, minTimeout: 5, maxTimeout: 100, randomize: true } });
    const state = JSON.parse(fs.readFileSync(file, 'utf8'));
    state.node = (state.node || 0) + 1;
    fs.writeFileSync(file + '.node.tmp', JSON.stringify(state));
    fs.renameSync(file + '.node.tmp', file);
    await release();
  }
})().catch((error) => { console.error(error); process.exit(1); });
";

#[tokio::test]
async fn node_program_shares_the_lock() {
    let modules = match tools::installed("npm/proper-lockfile") {
        Ok(folder) => folder.join("node_modules"),
        Err(reason) => return tools::skip("f20_a_node_program_and_we_keep_out_of_each_others_way", &reason),
    };
    let t = TestWorkspace::new(&[]).await;
    t.workspace.state().create().unwrap();
    let mut node = Spawn::new("node")
        .args(["-e", NODE])
        .args([t.path("state.json")])
        .env("NODE_PATH", modules)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let state = t.workspace.state().clone();
    let ours = tokio::task::spawn_blocking(move || {
        for _ in 0..100 {
            let count = |state: &mut Map<String, Value>| {
                let counted = state.get("rust").and_then(Value::as_u64).unwrap_or(0);
                state.insert("rust".into(), (counted + 1).into());
                true
            };
            state.update(count).unwrap();
        }
    });
    let status = tokio::time::timeout(Duration::from_mins(1), node.wait()).await.unwrap().unwrap();
    ours.await.unwrap();
    assert!(status.success());
    let state = t.json("state.json");
    assert_eq!((&state["node"], &state["rust"]), (&100.into(), &100.into()));
    assert!(!t.path("state.json.lock").exists());
}

/// Whichever change rebuilds the file.
#[tokio::test]
async fn rebuilt_state_has_all_agents() {
    for damage in [None, Some("{")] {
        let t = TestWorkspace::new(&["codex", "claude"]).await;
        t.workspace.create_team(name("backend"), None, false).await.unwrap();
        match damage {
            None => std::fs::remove_file(t.path("state.json")).unwrap(),
            Some(damage) => t.write("state.json", damage),
        }
        t.workspace.register(switchboard_hub::Registration::mailbox(name("zed"))).await.unwrap();
        let state = t.json("state.json");
        let agents: Vec<_> = state["chatAgents"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(agents, ["claude", "codex", "zed"], "{damage:?}");
        assert!(state["teams"]["backend"].is_object(), "{damage:?}");
    }
}

/// A process suspended for longer than a lock lives must not overwrite later changes.
#[tokio::test]
async fn lost_lock_prevents_the_write() {
    let t = TestWorkspace::new(&["codex"]).await;
    let before = t.bytes("state.json");
    let lock = t.path("state.json.lock");
    let lost = t.workspace.state().update(|state| {
        std::fs::remove_dir_all(&lock).unwrap();
        std::fs::create_dir(&lock).unwrap();
        state.insert("late".into(), true.into());
        true
    });
    assert!(matches!(lost, Err(WorkspaceError::LockLost)), "{lost:?}");
    assert_eq!(t.bytes("state.json"), before);
}
