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
    let said = client(&sandbox).call("echo_suite", call("environment", json!({})));
    assert!(said.text.contains("PATH"), "{said:?}");
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
        let said = client.call(name, json!({}));
        assert!(said.failed && said.text.contains(shown), "{said:?}");
    }
    let said = client.call("echo_suit", json!({}));
    assert!(said.failed && said.text.contains("Did you mean 'echo_suite'?"), "{said:?}");
    // Errors of our own tools have their usual text.
    let said = client.call("send_mesage", json!({}));
    assert!(said.failed && said.text.contains("Did you mean 'send_message'?"), "{said:?}");
}
