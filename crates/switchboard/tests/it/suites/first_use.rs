//! The first contact of a model and a server.

use serde_json::json;
use test_support::files::{chmod, put};

use super::{add, call, client, fixture, sandbox};

#[test]
fn downloaded_server_answers_first_call() {
    let sandbox = sandbox();
    put(sandbox.path().join("switchboard.config.json"), r#"{ "timeouts": { "childSpawnMs": 100 } }"#);
    // As npx does without a terminal for its progress.
    let npx = sandbox.path().join("npx");
    put(&npx, "#!/bin/sh\necho start >> starts\nsleep 1\nexec \"$@\"\n");
    chmod(&npx, 0o755);
    let mut command = fixture("echo.py");
    command.insert(0, npx.display().to_string());
    add(&sandbox, "echo", &command);
    let answer = client(&sandbox).call("echo_suite", call("environment", json!({})));
    assert!(answer.text.contains("PATH"), "{answer:?}");
    let starts = std::fs::read_to_string(sandbox.path().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 1, "it was started once");
}

#[test]
fn direct_tool_call_explains_call_tool() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    sandbox.ok(["suite", "warm"]);
    let mut client = client(&sandbox);
    let shown = r#"call echo_suite with {"action":"call","subtool":"environment","args":{…}}"#;
    for name in ["environment", "mcp__echo__environment"] {
        let answer = client.call(name, json!({}));
        assert!(answer.failed && answer.text.contains(shown), "{answer:?}");
    }
    let answer = client.call("echo_suit", json!({}));
    assert!(answer.failed && answer.text.contains("Did you mean 'echo_suite'?"), "{answer:?}");
    // Errors of our own tools have their usual text.
    let answer = client.call("send_mesage", json!({}));
    assert!(answer.failed && answer.text.contains("Did you mean 'send_message'?"), "{answer:?}");
}
