//! Isolation: a server cannot harm the host, other clients or a person.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::TestServer;
use test_support::files::put;
use test_support::mcp::Client;

use super::{add, call, client, fixture, sandbox};
use crate::BINARY;

/// Adds a server that lists the tools of a file.
fn lists(sandbox: &test_support::Sandbox, name: &str, lists: &Value) {
    let file = sandbox.path().join(format!("{name}-lists.json"));
    put(&file, lists.to_string());
    let mut command = fixture("toolbox.py");
    command.push(file.display().to_string());
    add(sandbox, name, &command);
}

#[test]
fn cyclic_schema_is_harmless() {
    let sandbox = sandbox();
    let schema = json!({
        "type": "object", "properties": { "x": { "$ref": "#/$defs/j" } },
        "$defs": { "j": { "anyOf": [{ "type": "string" }, { "type": "array", "items": { "$ref": "#/$defs/j" } }] } },
    });
    lists(&sandbox, "odd", &json!({ "tools": [{ "name": "t", "inputSchema": schema }] }));
    let mut client = client(&sandbox);
    let answer =
        client.request("tools/call", json!({ "name": "odd_suite", "arguments": { "action": "introspect" } }));
    let text = answer.unwrap()["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("t(x?: string|"), "{text}");
    let called = json!({ "name": "odd_suite", "arguments": call("t", json!({ "x": [["a"], 7] })) });
    assert_eq!(client.request("tools/call", called).unwrap()["isError"], true);
}

#[test]
fn proxy_loop_is_detected_under_serve() {
    let sandbox = sandbox();
    add(&sandbox, "me", &[BINARY.to_owned(), "mcp".to_owned()]);
    let served = TestServer::start(&sandbox);
    let mut client = Client::streamable(&served, None);
    let inner = call("me_suite", json!({ "action": "introspect" }));
    let answer = client.request("tools/call", json!({ "name": "me_suite", "arguments": inner })).unwrap();
    assert!(answer.to_string().contains("the same workspace again"), "{answer}");
}

#[test]
fn server_logs_reach_the_calling_client() {
    let sandbox = sandbox();
    add(&sandbox, "flood", &fixture("flood.py"));
    let served = TestServer::start(&sandbox);
    let (mut one, mut other) = (Client::streamable(&served, None), Client::streamable(&served, None));
    let introspect = json!({ "name": "flood_suite", "arguments": { "action": "introspect" } });
    other.request("tools/call", introspect).unwrap();
    one.request("tools/call", json!({ "name": "flood_suite", "arguments": call("echo", json!({})) }))
        .unwrap();
    assert_eq!(one.notification("notifications/message")["data"], "flooded");
    other.request("ping", json!({})).unwrap();
    assert_eq!(other.notification_within("notifications/message", Duration::ZERO), None);

    one.request("logging/setLevel", json!({ "level": "error" })).unwrap();
}

#[test]
fn blocked_server_reports_its_reason() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    put(
        sandbox.path().join("switchboard.config.json"),
        r#"{"suites": {"echo": {"suiteName": "send_message", "expose": {"allow": ["[a"]}}}}"#,
    );
    for report in [sandbox.ok(["suite", "list"]), sandbox.ok(["doctor"])] {
        assert!(report.contains("its tool name send_message is taken"), "{report}");
        assert!(report.contains("'[a' is not a valid pattern"), "{report}");
    }
}

#[test]
fn logs_are_found_for_any_server_name() {
    let sandbox = sandbox();
    add(&sandbox, "my notes.v2", &fixture("chatty.py"));
    sandbox.run(["suite", "introspect", "my notes.v2"]);
    assert!(sandbox.ok(["suite", "logs", "my notes.v2"]).contains("red to stderr"));
}

#[test]
fn failed_call_sets_the_exit_code() {
    let sandbox = sandbox();
    lists(&sandbox, "box", &json!({ "tools": [{ "name": "fails", "inputSchema": { "type": "object" } }] }));
    let ran = sandbox.run(["--json", "suite", "call", "box", "fails"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.starts_with(r#"{"content":[{"type":"text","text":"it failed"}],"isError":true}"#));
}

#[test]
fn flat_tools_retain_server_annotations() {
    let sandbox = sandbox();
    let tool = json!({
        "name": "t", "title": "T", "inputSchema": { "type": "object", "x": 1 },
        "annotations": { "readOnlyHint": true, "unknown": 1 }, "execution": { "taskSupport": "optional" }, "x-kept": [1],
    });
    let (prompt, resource) =
        (json!({ "name": "p", "x-kept": 1 }), json!({ "uri": "x://r", "name": "r", "x-kept": 2 }));
    let template = json!({ "uriTemplate": "x://{id}", "name": "i", "x-kept": 3 });
    let without = json!({ "name": "without" });
    lists(
        &sandbox,
        "box",
        &json!({ "tools": [tool, without], "prompts": [prompt], "resources": [resource], "templates": [template] }),
    );
    put(
        sandbox.path().join("switchboard.config.json"),
        r#"{"suites": {"box": {"expose": {"mode": "flat", "bare": true}}}}"#,
    );
    let mut client = client(&sandbox);
    for (method, member, expected) in [
        (
            "tools/list",
            "tools",
            vec![tool, json!({ "name": "without", "inputSchema": { "type": "object" } })],
        ),
        ("prompts/list", "prompts", vec![prompt]),
        ("resources/list", "resources", vec![resource]),
        ("resources/templates/list", "resourceTemplates", vec![template]),
    ] {
        let list = client.request(method, json!({})).unwrap();
        for item in expected {
            assert!(list[member].as_array().unwrap().contains(&item), "{method}: {item} in {list}");
        }
    }
}
