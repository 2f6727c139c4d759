use serde_json::json;
use switchboard_core::PresenceState;

use super::*;
use crate::test_workspace::{TestWorkspace, agent, name};

fn terminal(who: &str, purpose: &str) -> TerminalRegistration {
    TerminalRegistration::new(name(who), std::process::id(), purpose)
}

#[tokio::test]
async fn terminal_record_matches_the_protocol() {
    let test = TestWorkspace::new(&[]).await;
    let record = test.workspace.register_terminal(terminal("codex", "coding")).await.unwrap();
    assert_eq!(record.id, agent("codex"));
    let now = iso(test.clock.now());
    let mut written = test.json("state.json")["terminals"]["codex"].clone();
    let began = written["startTime"].take();
    assert!(began.as_str().unwrap().ends_with('Z'), "{began}");
    assert!(written["processStart"].take().is_string());
    assert_eq!(
        written,
        json!({
            "purpose": "coding", "role": "none", "pid": std::process::id(), "childPid": null, "commandId": null,
            "startTime": null, "processStart": null, "status": "active", "friendlyName": "codex", "icon": "code",
            "color": "blue", "lastSeen": now, "ideName": null, "external": false, "activeWorkflow": null,
            "currentStep": 0, "activeWorkflowPhase": 0, "activePersona": null, "workflowToolInvocations": [],
        })
    );
    assert!(test.path("inbox/codex").is_dir());
}

#[tokio::test]
async fn registering_twice_retains_role_and_unknown_keys() {
    let test = TestWorkspace::new(&[]).await;
    let first = TerminalRegistration {
        role: Some("reviewer".into()),
        team: Some(name("backend")),
        pane: Some("%1".into()),
        icon: Some("star".into()),
        ..terminal("codex", "coding")
    };
    test.workspace.register_terminal(first).await.unwrap();
    test.workspace
        .state()
        .update(|state| {
            let record = state["terminals"]["codex"].as_object_mut().unwrap();
            record.insert("activeWorkflow".into(), "challenge".into());
            record.insert("currentStep".into(), 3.into());
            record.insert("theirs".into(), json!({ "kept": true }));
            true
        })
        .unwrap();
    test.workspace.set_status(&agent("codex"), "offline", Some("gone")).await.unwrap();
    let record = test.workspace.register_terminal(terminal("Codex", "coding")).await.unwrap();
    assert_eq!((record.role.as_deref(), record.team), (Some("reviewer"), Some(name("backend"))));
    let written = &test.json("state.json")["terminals"];
    assert_eq!(written.as_object().unwrap().len(), 1);
    let written = &written["codex"];
    assert_eq!(
        (&written["role"], &written["team"], &written["activeWorkflow"], &written["currentStep"]),
        (&json!("reviewer"), &json!("backend"), &json!("challenge"), &json!(3))
    );
    assert_eq!((&written["theirs"], &written["icon"]), (&json!({ "kept": true }), &json!("star")));
    assert!(written.get("pane").is_none() && written.get("statusState").is_none(), "{written}");
    assert_eq!(test.json("state.json")["teams"]["backend"]["members"], json!(["codex"]));
}

#[tokio::test]
async fn icon_and_color_follow_the_purpose() {
    for (purpose, expected) in [
        ("code review", ("eye", "orange")),
        ("jules", ("rocket", "purple")),
        ("coding", ("code", "blue")),
        ("anything", ("terminal", "cyan")),
    ] {
        assert_eq!(icon_and_color(purpose), expected);
    }
    let test = TestWorkspace::new(&[]).await;
    test.workspace.register_terminal(terminal("codex", "coding")).await.unwrap();
    test.workspace.register_terminal(terminal("codex", "review")).await.unwrap();
    assert_eq!(test.json("state.json")["terminals"]["codex"]["icon"], "eye");
}

#[tokio::test]
async fn chat_agent_can_become_a_terminal() {
    let test = TestWorkspace::new(&["codex"]).await;
    test.workspace.register_terminal(terminal("codex", "agent")).await.unwrap();
    let state = test.json("state.json");
    assert!(state["chatAgents"].get("codex").is_none());
    assert_eq!(
        (&state["terminals"]["codex"]["color"], state["terminals"]["codex"].get("type")),
        (&json!("cyan"), None)
    );
    // Its program registers over MCP.
    test.workspace.register_chat_agent(ChatRegistration::new(name("codex"), "codex-cli")).await.unwrap();
    let state = test.json("state.json");
    assert!(state["chatAgents"].get("codex").is_none());
    assert_eq!(state["terminals"]["codex"]["interface"], "codex-cli");
    assert_eq!(state["terminals"]["codex"]["pid"], std::process::id());
}

#[tokio::test]
async fn terminal_is_offline_after_its_owner_exits() {
    let test = TestWorkspace::new(&[]).await;
    let heard = async || {
        test.workspace.import_state().await.unwrap();
        let presence = test.workspace.hub().agents().presence(&agent("codex"));
        (presence.state, presence.message)
    };
    let here = ProcessIdentity::this_process();
    let gone: ProcessIdentity = format!("{}/4194999/1", here.host()).parse().unwrap();
    let elsewhere: ProcessIdentity = "elsewhere/4194999/1".parse().unwrap();
    for owner in [here, elsewhere] {
        let new = TerminalRegistration { owner: Some(owner), ..terminal("codex", "agent") };
        test.workspace.register_terminal(new).await.unwrap();
        assert_eq!(heard().await, (PresenceState::Awake, None));
    }
    let new = TerminalRegistration { owner: Some(gone), ..terminal("codex", "agent") };
    test.workspace.register_terminal(new).await.unwrap();
    assert_eq!(heard().await, (PresenceState::Offline, Some("its terminal was killed".to_owned())));
    // Also right after its terminal's last heartbeat.
    test.workspace.record_heartbeat(&agent("codex")).await;
    assert_eq!(heard().await, (PresenceState::Awake, None));
}

#[tokio::test]
async fn chat_record_matches_the_protocol() {
    let test = TestWorkspace::new(&[]).await;
    let new = ChatRegistration {
        capabilities: vec!["chat".into(), "review".into()],
        role: Some("lead".into()),
        friendly_name: Some("The Boss".into()),
        ..ChatRegistration::new(name("claude"), "claude-code")
    };
    test.workspace.register_chat_agent(new).await.unwrap();
    let now = iso(test.clock.now());
    let mut expected = json!({
        "type": "chat", "interface": "claude-code", "role": "lead", "status": "active", "statusMessage": null,
        "capabilities": ["chat", "review"], "friendlyName": "The Boss", "icon": "comment-discussion",
        "color": "purple", "registeredAt": now, "lastSeen": now, "activeWorkflow": null, "currentStep": 0,
        "activeWorkflowPhase": 0, "activePersona": null, "workflowToolInvocations": [],
    });
    assert_eq!(test.json("state.json")["chatAgents"]["claude"], expected);
    assert!(test.path("inbox/claude").is_dir());
    test.clock.advance(jiff::SignedDuration::from_secs(5));
    test.workspace.register_chat_agent(ChatRegistration::new(name("claude"), "cursor")).await.unwrap();
    expected["interface"] = json!("cursor");
    expected["lastSeen"] = json!(iso(test.clock.now()));
    assert_eq!(test.json("state.json")["chatAgents"]["claude"], expected);
}

#[tokio::test]
async fn invalid_registration_names_field_and_writes_nothing() {
    let test = TestWorkspace::new(&[]).await;
    let before = test.path("state.json").exists();
    let refused = [
        (TerminalRegistration { pid: 0, ..terminal("codex", "x") }, "the field 'pid' is 0"),
        (
            TerminalRegistration { pid: i32::MAX.unsigned_abs(), ..terminal("codex", "x") },
            "and no such process runs here",
        ),
        (terminal("codex", " "), "the field 'purpose' is empty"),
        (terminal("codex", "a\nb"), "the field 'purpose' holds a control character"),
        (
            TerminalRegistration { pane: Some("-t".into()), ..terminal("codex", "x") },
            "the field 'pane' is '-t'",
        ),
        (
            TerminalRegistration { color: Some("c".repeat(501)), ..terminal("codex", "x") },
            "the field 'color' has 501 bytes",
        ),
        (terminal("human", "x"), "reserved for the person"),
    ];
    for (new, expected) in refused {
        let error = test.workspace.register_terminal(new).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let chat = test.workspace.register_chat_agent(ChatRegistration::new(name("codex"), "")).await;
    assert_eq!(chat.unwrap_err().to_string(), "the field 'interface' is empty; give it a value");
    assert_eq!(test.path("state.json").exists(), before);
    assert!(test.workspace.hub().directory().await.unwrap().agents().next().is_none());
    let external =
        TerminalRegistration { pid: i32::MAX.unsigned_abs(), external: true, ..terminal("codex", "x") };
    test.workspace.register_terminal(external).await.unwrap();
    assert_eq!(test.json("state.json")["terminals"]["codex"]["startTime"], iso(test.clock.now()));
}

#[tokio::test]
async fn agent_returning_from_offline_is_awake() {
    let test = TestWorkspace::new(&["claude"]).await;
    test.workspace.register_terminal(terminal("codex", "coding")).await.unwrap();
    for who in ["codex", "claude"] {
        test.workspace.set_status(&agent(who), "offline", Some("gone")).await.unwrap();
        let other = test.open_another().await;
        assert_eq!(other.hub().agents().presence(&agent(who)).state.as_str(), "offline");
        assert_eq!(other.hub().agents().presence(&agent(who)).message.as_deref(), Some("gone"));
        other.record_heartbeat(&agent(who)).await;
        other.close().await;
        let other = test.open_another().await;
        assert_eq!(other.hub().agents().presence(&agent(who)).state.as_str(), "awake");
        other.close().await;
    }
}

/// Names that differ in case are equal, and share one folder in any spelling.
#[tokio::test]
async fn mail_for_unregistered_name_uses_one_folder() {
    let t = TestWorkspace::new(&["claude"]).await;
    let unregistered = |from: &str, to: &str, body: &str| crate::OutgoingMessage {
        allow_unregistered: true,
        ..crate::test_workspace::outgoing(from, to, body)
    };
    let one = t.send(unregistered("Ghost", "Nobody", "one")).await;
    let two = t.send(unregistered("ghost", "nobody", "two")).await;
    let files = [one, two].map(|id| format!("{}.json", crate::ids::to_native(id)));
    t.workspace.scan_mailbox(&crate::test_workspace::agent("NOBODY")).await.unwrap();
    t.workspace.verify_mailboxes().await.unwrap();
    assert_eq!((t.names("inbox/Nobody"), t.names("inbox/nobody")), (files.to_vec(), vec![]));
    assert_eq!((t.names("inbox/NOBODY"), t.names("outbox/ghost")), (vec![], vec![]));
    assert_eq!(t.names("outbox/Ghost").len(), 2);

    // Folders from before, with the same message in each.
    let copy = t.bytes(&format!("inbox/Nobody/{}", files[0]));
    t.write(&format!("inbox/nobody/{}", files[0]), copy);
    t.workspace.acknowledge(&crate::test_workspace::agent("nobody"), two, None).await.unwrap();
    t.workspace.register(switchboard_hub::Registration::mailbox(name("NoBody"))).await.unwrap();
    t.workspace.register(switchboard_hub::Registration::mailbox(name("GHOST"))).await.unwrap();
    t.workspace.verify_mailboxes().await.unwrap();
    assert_eq!(t.names("inbox/NoBody"), [files[0].clone()]);
    assert_eq!((t.names("inbox/Nobody"), t.names("inbox/nobody")), (vec![], vec![]));
    assert_eq!((t.names("archive/NoBody").len(), t.names("outbox/GHOST").len()), (1, 2));
    assert_eq!(t.waiting("nobody").await, ["one"]);

    t.workspace.deregister(name("NoBody")).await.unwrap();
    t.send(unregistered("claude", "nobody", "three")).await;
    t.workspace.verify_mailboxes().await.unwrap();
    assert_eq!((t.names("inbox/NoBody").len(), t.names("inbox/nobody")), (2, vec![]));
    assert_eq!(crate::inspect::inspect(&t.workspace).await.unwrap(), []);
}

/// The hub has the new name, and the process that moves the files was killed.
#[tokio::test]
async fn interrupted_rename_is_finished() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let done = t.send(crate::test_workspace::outgoing("claude", "codex", "done")).await;
    t.send(crate::test_workspace::outgoing("claude", "codex", "waits")).await;
    t.send(crate::test_workspace::outgoing("codex", "claude", "sent")).await;
    t.workspace.acknowledge(&crate::test_workspace::agent("codex"), done, None).await.unwrap();
    t.workspace.hub().agents().rename(name("codex"), name("gpt")).await.unwrap();

    t.workspace.verify_mailboxes().await.unwrap();
    for section in ["inbox", "archive", "outbox"] {
        let names = |who: &str| t.names(&format!("{section}/{who}")).len();
        assert_eq!((names("codex"), names("gpt")), (0, 1), "{section}");
    }
    let agents: Vec<_> = t.json("state.json")["chatAgents"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(agents, ["claude", "gpt"]);
    assert_eq!(crate::inspect::inspect(&t.workspace).await.unwrap(), []);
}
