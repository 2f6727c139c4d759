//! `switchboard agents`

use insta::assert_snapshot;
use test_support::files;

use crate::{bare, workspace};

#[test]
fn empty_list_explains_registration() {
    let sandbox = bare();
    sandbox.ok(["init"]);
    assert_snapshot!(sandbox.show(["agents"]), @"
    exit 0
    --- stderr
    No agents yet; `switchboard agents register NAME` makes one known.
    ");
    assert_snapshot!(sandbox.show(["agents", "--json"]), @"exit 0");
}

#[test]
fn agent_is_registered_with_role_and_team() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["agents", "register", "gemini", "--role", "tester", "--team", "backend"]), @r#"
    exit 0
    --- stdout
    gemini, tester, team backend
    --- stderr
    In its shell: export SWITCHBOARD_AGENT_NAME="gemini", then `switchboard inbox` and `switchboard wait`.
    "#);
    assert_snapshot!(sandbox.show(["agents", "register", "gemini", "--role", "reviewer", "--json"]), @r#"
    exit 0
    --- stdout
    {"doors":["workspace"],"name":"gemini","presence":"offline","role":"reviewer","since":null,"status":null,"status_message":null,"team":"backend","unread":0}
    "#);
    sandbox.send("claude", "gemini", "hello");
    assert_snapshot!(sandbox.show(["agents", "list"]), @"
    exit 0
    --- stdout
    NAME    PRESENCE        ROLE      TEAM     UNREAD  DOING
    claude  awake just now  -         -        0       active
    codex   offline         -         -        0
    gemini  offline         reviewer  backend  1
    ");
    assert_snapshot!(sandbox.show(["agents", "--json"]), @r#"
    exit 0
    --- stdout
    {"doors":["workspace"],"name":"claude","presence":"awake","role":null,"since":"[time]","status":"active","status_message":null,"team":null,"unread":0}
    {"doors":["workspace"],"name":"codex","presence":"offline","role":null,"since":null,"status":null,"status_message":null,"team":null,"unread":0}
    {"doors":["workspace"],"name":"gemini","presence":"offline","role":"reviewer","since":null,"status":null,"status_message":null,"team":"backend","unread":1}
    "#);
    let state = files::read_json_object(&sandbox.file("state.json")).unwrap();
    assert_eq!(state["chatAgents"]["gemini"]["role"], "reviewer");
    assert_eq!(state["teams"]["backend"]["members"][0], "gemini");
}

#[test]
fn invalid_agent_name_is_refused() {
    let sandbox = workspace();
    for bad in ["", "a/b", "..", "all", "user", "session", "CON", "x.", "#x", "a@b"] {
        let ran = sandbox.run(["agents", "register", bad]);
        assert!(matches!(ran.code, Some(2 | 4)), "{bad:?}: {ran:?}");
    }
    assert_snapshot!(sandbox.show(["agents", "register", "a/b"]), @"
    exit 2
    --- stderr
    error: '/' is not allowed in a name; use letters, digits, space, '.', '_' and '-'
    ");
    assert_snapshot!(sandbox.show(["agents", "register", "human"]), @"
    exit 4
    --- stderr
    error: the name 'human' is reserved for the person
    hint: choose another name
    ");
    assert_eq!(sandbox.json(["agents"]).len(), 2);
}

#[test]
fn agent_status_is_shown() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["agents", "status", "codex", "working", "on the parser"]), @"
    exit 0
    --- stdout
    codex
    ");
    assert_snapshot!(sandbox.show(["agents"]), @"
    exit 0
    --- stdout
    NAME    PRESENCE        ROLE  TEAM  UNREAD  DOING
    claude  offline         -     -     0
    codex   awake just now  -     -     0       working: on the parser
    ");
    assert_snapshot!(sandbox.show(["agents", "status", "codx", "working"]), @"
    exit 5
    --- stderr
    error: no agent is named 'codx'
    hint: did you mean 'codex'?
    ");
}

#[test]
fn renamed_agent_retains_its_mail() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "before");
    assert_snapshot!(sandbox.show(["agents", "rename", "codex", "Codex 2"]), @"
    exit 0
    --- stdout
    Codex 2
    ");
    sandbox.send("claude", "codex", "to the old name");
    let bodies: Vec<_> = sandbox.json(["inbox", "Codex 2"]).into_iter().map(|m| m["body"].clone()).collect();
    assert_eq!(bodies, ["before", "to the old name"]);
    assert!(sandbox.file(&format!("inbox/Codex 2/{id}.json")).exists());
    assert!(files::message_files(&sandbox.file("inbox/codex")).is_empty());
    assert_snapshot!(sandbox.show(["agents", "rename", "Codex 2", "claude"]), @"
    exit 1
    --- stderr
    error: the name 'claude' is already in use
    hint: choose another name; `switchboard agents` lists those in use
    ");
    assert_snapshot!(sandbox.show(["agents", "rename", "nobody", "somebody"]), @"
    exit 5
    --- stderr
    error: no agent is named 'nobody'
    hint: known agents: claude, Codex 2
    ");
}

#[test]
fn removed_agent_retains_its_mail() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "keep me");
    assert_snapshot!(sandbox.show(["agents", "remove", "codex"]), @"
    exit 0
    --- stdout
    codex removed; its mail stays
    ");
    assert_eq!(sandbox.json(["agents"]).len(), 1);
    assert!(sandbox.file(&format!("inbox/codex/{id}.json")).exists());
    assert_eq!(sandbox.run(["send", "codex", "x"]).code, Some(5));
    assert_snapshot!(sandbox.show(["agents", "remove", "claude", "--json"]), @r#"
    exit 0
    --- stdout
    {"name":"claude","removed":true}
    "#);
}

#[test]
fn agents_and_who_agree_on_watchers() {
    let sandbox = workspace();
    let watch = sandbox.start(["watch", "--agent", "codex", "--channel", "general", "--", "cat"]);
    watch.line();
    let presence = |verb: &str| {
        let all = sandbox.json([verb]);
        let codex = all.iter().find(|agent| agent["name"] == "codex").unwrap();
        codex["presence"].as_str().unwrap().to_owned()
    };
    test_support::poll::until("the watcher to be awake", || (presence("who") == "awake").then_some(()));
    assert_eq!(presence("agents"), "awake");
    // It has a mailbox as well, which the watcher does not read; a sender to it gets a notice.
    let output = sandbox.run(["send", "codex", "are you there?"]).stderr;
    let expected =
        "codex: delivered; its watcher answers in a channel: `switchboard send '#general' \"@codex …\"`\n";
    assert_eq!(output, expected);
    sandbox.ok(["send", "#general", "@codex are you there?"]);
    test_support::poll::until("the watcher to answer", || {
        let printed = sandbox.json(["channel", "read", "--channel", "general"]);
        printed.iter().any(|message| message["from"] == "codex").then_some(())
    });

    for text in ["one", "two"] {
        sandbox.send("codex", "claude", text);
    }
    let unread = |verb: &str| {
        let all = sandbox.json([verb]);
        all.iter().find(|agent| agent["name"] == "claude").unwrap()["unread"].clone()
    };
    assert_eq!((unread("agents"), unread("who")), (2.into(), 2.into()));
    sandbox.run_as("claude", ["inbox"]).ok();
    assert_eq!((unread("agents"), unread("who")), (0.into(), 0.into()), "seen, though not acknowledged");
}

/// A removed agent is retired, one that never existed is unknown.
#[test]
fn removed_agent_differs_from_unknown_one() {
    let sandbox = workspace();
    sandbox.ok(["agents", "remove", "codex"]);
    let ran = sandbox.run(["send", "codex", "x"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(
        ran.stderr.contains("'codex' was removed at 20") && ran.stderr.contains("links.forwards"),
        "{ran:?}"
    );
    let ran = sandbox.run(["send", "claud", "x"]);
    assert!(ran.code == Some(5) && ran.stderr.contains("no agent is named 'claud'"), "{ran:?}");
}

#[test]
fn unknown_role_is_refused() {
    let sandbox = workspace();
    let ran = sandbox.run(["agents", "register", "zed", "--role", "leed"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("did you mean 'lead'?"), "{ran:?}");
    assert_eq!(sandbox.json(["agents"]).len(), 2);
}
