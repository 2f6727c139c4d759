//! Actions have the same rules and options on the command line and as MCP tools.

use serde_json::{Value, json};

use crate::mcp::stdio;
use crate::workspace;

/// Requests that each face must refuse: the command, the tool and its arguments.
fn invalid() -> Vec<(Vec<&'static str>, &'static str, Value)> {
    let send = |more: Value| {
        let mut arguments = json!({ "recipient": "codex", "action": "delegate_task", "payload": "text" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    vec![
        (vec!["send", "codex", ""], "send_message", send(json!({ "payload": "" }))),
        (vec!["send", "codex", " \n "], "send_message", send(json!({ "payload": " \n " }))),
        (
            vec!["send", "codex", "text", "--replace", "--kind", "status_update"],
            "send_message",
            send(json!({ "replace": true, "action": "status_update" })),
        ),
        (vec!["send", "codex", "text", "--claim", "T-1"], "send_message", send(json!({ "claim": "T-1" }))),
        (
            vec!["send", "codex", "text", "--claim", "T-1:7"],
            "send_message",
            send(json!({ "claim": "T-1:7" })),
        ),
        (
            vec!["send", "codex", "text", "--ttl", "0s"],
            "send_message",
            send(json!({ "expiresInMinutes": 0 })),
        ),
        (
            vec!["team", "message", "backend", ""],
            "send_team_message",
            json!({ "team": "backend", "action": "delegate_task", "payload": "" }),
        ),
        (
            vec!["claim", "T-1", "--note", "two\nlines"],
            "claim_task",
            json!({ "task": "T-1", "note": "two\nlines" }),
        ),
        (vec!["claim", "T-1", "--for", "2d"], "claim_task", json!({ "task": "T-1", "minutes": 2880 })),
        (
            vec!["reserve", "a.rs", "--note", "two\nlines"],
            "reserve_files",
            json!({ "paths": ["a.rs"], "note": "two\nlines" }),
        ),
        (vec!["reserve", "a.rs", "--release"], "reserve_files", json!({ "paths": ["a.rs"], "minutes": 0 })),
        (
            vec![
                "agents",
                "status",
                "claude",
                "a status that is much longer than a word or two, as no status should be",
            ],
            "set_agent_status",
            json!({ "status": "a status that is much longer than a word or two, as no status should be" }),
        ),
        (vec!["ack", "msg_1_none"], "ack_message", json!({ "ids": ["msg_1_none"] })),
        (vec!["workflow", "start", "no-such"], "start_workflow", json!({ "name": "no-such" })),
    ]
}

#[test]
fn invalid_requests_are_refused_on_each_face() {
    let sandbox = workspace();
    let mut claude = stdio(&sandbox, None).registered("claude");
    for (command, tool, arguments) in invalid() {
        let ran = sandbox.run_as("claude", &command);
        assert_ne!(ran.code, Some(0), "{command:?}: {ran:?}");
        claude.refused(tool, arguments);
    }
    assert_eq!(sandbox.json(["tail"]), Vec::<Value>::new(), "nothing was sent");
}

#[test]
fn idempotency_key_counts_on_both_faces() {
    let sandbox = workspace();
    let mut claude = stdio(&sandbox, None).registered("claude");
    let arguments =
        json!({ "recipient": "codex", "action": "delegate_task", "payload": "once", "idempotencyKey": "k" });
    let sent = claude.ok("send_message", arguments);
    let ran = sandbox.run_as("claude", ["send", "codex", "once", "--idempotency-key", "k"]);
    assert_eq!(ran.ok().trim(), sent["id"], "the message of the first send");
    let other = sandbox.run_as("claude", ["send", "codex", "another", "--idempotency-key", "k"]);
    assert_ne!(other.code, Some(0), "{other:?}");
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 1);
}

#[test]
fn replaced_tasks_are_archived_from_tool() {
    let sandbox = workspace();
    let mut claude = stdio(&sandbox, None).registered("claude");
    let task = |payload: &str, replace: bool| json!({ "recipient": "codex", "action": "delegate_task", "payload": payload, "replace": replace });
    claude.ok("send_message", task("first", false));
    let second = claude.ok("send_message", task("second", true));
    sandbox.ok(["wait", "codex", "--timeout", "10s"]);
    let archived = || sandbox.json(["inbox", "codex", "--archived"]);
    while archived().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let waiting = sandbox.json(["inbox", "codex"]);
    assert_eq!((waiting.len(), &waiting[0]["native_id"]), (1, &second["id"]));
}

#[test]
fn routed_message_needs_no_recipient() {
    let sandbox = workspace();
    sandbox.ok(["agents", "role", "codex", "coder 1"]);
    let all = r#"{"all": true}"#;
    let routed = ["send", "--routed", "please write it", "--metadata", all];
    let ran = sandbox.run_as("claude", routed);
    assert_ne!(ran.code, Some(0), "no workflow is active: {ran:?}");
    let ran = sandbox.run_as("claude", ["send", "codex", "please write it", "--routed"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    sandbox.ok(["workflow", "start", "handoff"]);
    sandbox.run_as("claude", routed).ok();
    let mut claude = stdio(&sandbox, None).registered("claude");
    let arguments =
        json!({ "action": "delegate_task", "payload": "please write it", "metadata": { "all": true } });
    let sent = claude.ok("send_message", arguments);
    assert_eq!(sent["to"], "codex");
    let inbox = sandbox.json(["inbox", "codex"]);
    assert_eq!(inbox.len(), 2, "{inbox:?}");
}
