//! Tests of the tool list for hosts.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rig::{Rig, call, call_text, names, tools};
use crate::host::Caller;

/// Returns the description of one of the servers used to measure the token budget.
fn described(name: &str, description: &str) -> Value {
    json!({ "name": name, "switchboardDescription": description, "command": { "cmd": "/nonexistent" } })
}

#[tokio::test]
async fn tool_list_stays_within_token_budget() {
    let rig = Rig::new();
    for (name, description) in [
        ("everything", "MCP feature tests"),
        ("memory", "Knowledge graph"),
        ("filesystem", "Read and write files"),
        ("git", "Git operations"),
    ] {
        rig.describe(name, &described(name, description));
    }
    let suites = rig.open();
    let list = suites.tools();
    assert_eq!(
        names(&list),
        ["everything_suite", "filesystem_suite", "git_suite", "memory_suite", "switchboard_tools"]
    );
    let text = serde_json::to_string(&list).unwrap();
    let tokens = tiktoken::get_encoding("o200k_base").unwrap().count(&text);
    assert!(tokens <= 260, "{tokens} tokens: {text}");
    let first: Value = serde_json::from_str(list[0].get()).unwrap();
    assert_eq!(
        first["inputSchema"],
        json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "enum": ["introspect", "call"] },
                "subtool": { "type": "string" },
                "args": { "type": "object" },
            },
            "required": ["action"],
        })
    );
    assert!(suites.has_tool("git_suite") && suites.has_tool("switchboard_tools") && !suites.has_tool("git"));
}

#[tokio::test]
async fn owner_descriptions_are_complete_or_reported() {
    let rig = Rig::new();
    let long = "word ".repeat(300);
    rig.describe("only", &described("only", &long));
    let suites = rig.open();
    let list = suites.tools();
    assert_eq!(names(&list), ["only_suite"], "one suite needs no search");
    assert!(list[0].get().contains(long.trim()), "{}", list[0].get());
    assert_eq!(suites.issues(), []);

    rig.describe("only", &described("only", &"word ".repeat(1000)));
    let suites = rig.open();
    assert!(suites.tools()[0].get().len() < 2_400);
    let issues: Vec<String> = suites.issues().into_iter().map(|problem| problem.message).collect();
    let expected = "only: its description has 4999 characters; only 2000 are shown. Shorten it.";
    assert_eq!(issues, [expected]);
}

#[tokio::test]
async fn truncated_list_is_reported_to_everyone() {
    let rig = Rig::new();
    let many: Vec<Value> = (0..10_001).map(|number| json!({ "name": format!("tool_{number}") })).collect();
    rig.child("box", &json!({ "tools": many }));
    let suites = rig.open_trusted();
    let (first, failed) = call_text(&suites, "box_suite", json!({ "action": "introspect" })).await;
    assert!(
        !failed && first.contains("box lists too many tools; only the first 10000 can be used"),
        "{first}"
    );
    let beyond = json!({ "subtool": "tool_10000" });
    for action in ["call", "introspect"] {
        let mut arguments = beyond.clone();
        arguments["action"] = json!(action);
        let (refused, failed) = call_text(&suites, "box_suite", arguments).await;
        let expected = "(box lists too many tools; only the first 10000 can be used)";
        assert!(failed && refused.contains("is not available") && refused.ends_with(expected), "{refused}");
    }
    suites.close().await;

    // Simulate another process, which reads the truncation from the stored catalogue.
    let issues: Vec<String> = rig.open().issues().into_iter().map(|problem| problem.message).collect();
    assert_eq!(issues, ["box lists too many tools; only the first 10000 can be used."]);
}

#[tokio::test]
async fn name_collisions_are_refused_deterministically() {
    let rig = Rig::new().with(json!({ "suites": {
        "b": { "suiteName": "a_suite" },
        "d": { "suiteName": "send_message" },
    } }));
    for name in ["a", "b", "c", "d"] {
        rig.describe(name, &described(name, "x"));
    }
    let suites = rig.open();
    suites.reserve(["send_message".to_owned()]);
    assert_eq!(names(&suites.tools()), ["a_suite", "c_suite", "switchboard_tools"]);
    let issues: BTreeSet<String> = suites.issues().into_iter().map(|problem| problem.message).collect();
    assert_eq!(issues.len(), 2, "{issues:?}");
    assert!(issues.iter().any(|problem| problem.contains("'a_suite' is taken by 'a'")), "{issues:?}");
    assert!(issues.iter().any(|problem| problem.starts_with("d:") && problem.contains("send_message")));
}

#[tokio::test]
async fn introspection_uses_stored_catalogue_until_stale() {
    let rig = Rig::new();
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    let (first, failed) = call_text(&suites, "box_suite", json!({ "action": "introspect" })).await;
    assert!(!failed && first.starts_with("echo(message: string) [read-only] — Says it again."), "{first}");
    suites.close().await;

    // Simulate another process, in which the child could not even be started.
    std::fs::remove_file(rig.paths().workspace.join("../box-lists.json")).unwrap();
    let suites = rig.open();
    let (kept, failed) = call_text(&suites, "box_suite", json!({ "action": "introspect" })).await;
    assert_eq!((kept, failed), (first.clone(), false));
    assert!(suites.table().suites[0].child.initialized().is_none(), "nothing was started");

    rig.clock.advance(jiff::SignedDuration::from_hours(49));
    let suites = rig.open();
    let (old, failed) = call_text(&suites, "box_suite", json!({ "action": "introspect" })).await;
    assert!(
        !failed && old.starts_with(&first) && old.contains("(as of 2 d ago; box is unavailable now"),
        "{old}"
    );
    suites.close().await;
}

#[tokio::test]
async fn search_covers_suites_and_names_omissions() {
    let rig = Rig::new();
    rig.child("box", &tools());
    rig.child("other", &json!({ "tools": [{ "name": "echo_twice", "description": "Says it twice." }] }));
    rig.trust();
    rig.child("stranger", &tools());
    let suites = rig.open();
    let (found, _) =
        call_text(&suites, "switchboard_tools", json!({ "query": "echo message", "limit": 2 })).await;
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 3, "{found}");
    assert!(lines[0].starts_with("box_suite: echo(message: string)"), "{found}");
    assert!(lines[1].starts_with("other_suite: echo_twice()"), "{found}");
    assert!(lines[2].contains("stranger_suite was not searched: stranger is not trusted yet"), "{found}");
    let (all, _) = call_text(&suites, "switchboard_tools", json!({})).await;
    assert!(all.contains("box_suite — Tests with box"), "{all}");
    suites.close().await;
}

#[tokio::test]
async fn warm_reports_each_child() {
    let rig = Rig::new();
    rig.child("box", &tools());
    rig.describe("broken", &described("broken", "x"));
    rig.trust();
    rig.child("stranger", &tools());
    let suites = rig.open();
    let warmed = suites.warm(&Caller::default()).await;
    let report: Vec<_> =
        warmed.iter().map(|warmed| (warmed.child.as_str(), warmed.tools.clone().ok())).collect();
    assert_eq!(report, [("box", Some(8)), ("broken", None), ("stranger", None)]);
    assert!(warmed[1].tools.as_ref().unwrap_err().contains("broken"), "{warmed:?}");
    suites.close().await;
}

#[tokio::test]
async fn reload_restarts_only_changed_children() {
    let rig = Rig::new();
    rig.child("box", &tools());
    rig.child("other", &tools());
    let suites = rig.open_trusted();
    let mut events = suites.events();
    call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" })).await;

    suites.reload(rig.config.clone()).await;
    assert!(events.try_recv().is_err(), "nothing changed");
    let config =
        serde_json::from_value(json!({ "suites": { "box": { "expose": { "deny": ["write"] } } } })).unwrap();
    suites.reload(config).await;
    assert!(events.try_recv().is_err(), "a host sees no difference");
    let (counted, _) = call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" })).await;
    assert_eq!(counted, "2", "the same process went on");
    let (denied, failed) =
        call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "write" })).await;
    assert!(failed && denied.contains("'write' is not available"), "{denied}");

    std::fs::remove_dir_all(rig.paths().workspace.join(".switchboard/mcps/other")).unwrap();
    suites.reload(rig.config.clone()).await;
    assert!(matches!(events.try_recv(), Ok(crate::SuitesEvent::ToolsChanged)));
    assert_eq!(names(&suites.tools()), ["box_suite"]);
    assert!(
        call(&suites, "other_suite", json!({ "action": "introspect" }))
            .await
            .unwrap()
            .get()
            .contains("no tool")
    );
    suites.close().await;
}

#[tokio::test]
async fn stopped_child_is_not_relisted() {
    let rig = Rig::new();
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" })).await;
    let suite = suites.table().suites[0].clone();
    suite.child.stop().await;
    suite.relist_tools().await;
    assert!(suite.child.initialized().is_none());
    let (_, failed) = call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" })).await;
    assert!(!failed, "a call starts it again");
    suites.close().await;
    assert!(suite.child.open(&Caller::default()).await.is_err(), "closed is closed for good");
    assert_eq!(suite.child.status().counts.starts, 2);
}

#[tokio::test]
async fn undescribed_child_is_described_by_tools() {
    let rig = Rig::new();
    let mut lists = tools();
    lists["instructions"] = Value::Null;
    rig.child("box", &lists);
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(rig.paths().child_file("box")).unwrap()).unwrap();
    file.as_object_mut().unwrap().remove("switchboardDescription");
    rig.describe("box", &file);
    let suites = rig.open_trusted();
    assert_eq!(suites.overview()[0].tools, None);
    suites.warm(&Caller::default()).await;
    let known = &suites.overview()[0];
    assert_eq!(known.description, "echo, count, write, fails and 4 more");
    assert_eq!(known.tools.map(|(count, _)| count), Some(8));
    suites.close().await;
}

#[tokio::test]
async fn unlisted_tool_call_suggests_its_suite() {
    let rig = Rig::new().with(json!({ "suites": { "box": { "expose": { "deny": ["write"] } } } }));
    rig.child("box", &tools());
    rig.describe("notes", &described("notes", "x"));
    let suites = rig.open_trusted();
    suites.reserve(["send_message".to_owned()]);
    // A suggestion must not start a child that was never listed.
    assert_eq!(suites.suggest_tool("echo"), None);
    suites.warm(&Caller::default()).await;
    let expected = "It is a tool of box_suite: call box_suite with {\"action\":\"call\",\"subtool\":\"echo\",\"args\":{…}}.";
    for name in ["echo", "box__echo", "mcp__box__echo"] {
        assert_eq!(suites.suggest_tool(name), Some(format!("There is no tool '{name}'. {expected}")));
    }
    assert_eq!(
        suites.suggest_tool("notes").as_deref(),
        Some("There is no tool 'notes'. Did you mean 'notes_suite'?")
    );
    // Neither hidden tools nor tools of other servers are ever suggested.
    for name in ["write", "send_mesage", "zzz", ""] {
        assert_eq!(suites.suggest_tool(name), None, "{name}");
    }
    suites.close().await;
}

/// Verifies that long untrusted text is neither compared nor echoed in full.
#[tokio::test]
async fn long_names_get_short_answers() {
    let rig = Rig::new();
    for name in ["box", "other"] {
        rig.child(name, &tools());
    }
    let suites = rig.open_trusted();
    let long = "echo ".repeat(20_000).trim().to_owned();
    let strange = (0..20_000).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
    for (tool, arguments, part) in [
        ("box_suite", json!({ "action": "introspect", "subtool": long }), "is not available"),
        ("box_suite", json!({ "action": "call", "subtool": long }), "is not available"),
        ("box_suite", json!({ "action": "introspect", "query": strange }), "No tool matches"),
        ("switchboard_tools", json!({ "query": strange }), "No tool matches"),
        ("switchboard_tools", json!({ "query": format!("{strange} echo") }), "box_suite: echo"),
    ] {
        let (text, _) = call_text(&suites, tool, arguments).await;
        assert!(text.contains(part) && text.len() < 600, "{} bytes: {:.300}", text.len(), text);
    }
    suites.close().await;
}
