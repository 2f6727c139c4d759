//! A server behind a wrapper, as a person wraps it and a client calls it: the built binary, a real server, and a
//! program that answers as the model.

use insta::assert_snapshot;
use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Running, Sandbox, files};

use crate::workspace;

/// Calls a tool in its first turn, and then reports the result.
const MODEL: &str = r#"
import os, sys
assert "OPENAI_API_KEY" not in os.environ and os.environ["CODEX_HOME"] == "/somewhere"
prompt = sys.stdin.read()
if "notes_add answered" in prompt:
    print('{"answer": "noted"}')
else:
    print('{"tool": "notes_add", "args": {"text": "milk"}}')
"#;

fn with_notes() -> Sandbox {
    let sandbox = workspace();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../door-suites/fixtures/children/notes.py");
    sandbox.ok(["suite", "add", "notes", "--", "python3", fixture]);
    sandbox
}

#[test]
fn wrapped_server_answers_plain_language() {
    let sandbox = with_notes();
    let command: Value = json!(["python3", "-c", MODEL]);
    sandbox
        .configure_user(&json!({ "suites": { "notes": { "wrapper": { "command": command } } } }).to_string());
    // A workspace file cannot choose the program.
    let theirs = json!({ "suites": { "notes": { "wrapper": { "command": ["sh", "-c", "exit 1"] } } } });
    files::put(sandbox.path().join("switchboard.config.json"), theirs.to_string());
    let warned = sandbox.run(["suite", "wrap", "notes"]);
    assert!(
        warned.stderr.contains("'suites.notes.wrapper.command' counts only in your own"),
        "{}",
        warned.stderr
    );
    let file: Value =
        serde_json::from_slice(&std::fs::read(sandbox.file("mcps/notes/.mcp.json")).unwrap()).unwrap();
    let args: Vec<&str> =
        file["command"]["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    // As the child client starts it: an unset variable is empty.
    let mut command = sandbox.command(args);
    command.env("OPENAI_API_KEY", "").env("CODEX_HOME", "/somewhere");
    let mut client = Client::stdio(Running::start_with_stdin(&mut command));
    assert_eq!(client.tool_names(), ["natural_language"]);
    let data = client.ok("natural_language", json!({ "query": "remember milk" }));
    let calls =
        json!([{ "tool": "notes_add", "args": { "text": "milk" }, "ok": true, "summary": "1 notes" }]);
    assert_eq!((&data["answer"], &data["calls"]), (&json!("noted"), &calls));
}

#[test]
fn wrap_and_unwrap_from_command_line() {
    let sandbox = with_notes();
    let before = files::tree(sandbox.file("mcps"));
    assert_snapshot!(sandbox.show(["suite", "wrap", "nots"]), @"
    exit 5
    --- stderr
    error: there is no server 'nots' in this workspace; did you mean 'notes'?
    hint: `switchboard suite list` lists all, also those with a problem
    ");
    assert_snapshot!(sandbox.show(["suite", "wrap", "notes"]), @"
    exit 0
    --- stdout
    notes is asked in plain language now.
      Its model's role is .switchboard/mcps/notes/CLAUDE.md; edit it as you like.
      `switchboard suite unwrap notes` takes it back.
    ");
    assert_snapshot!(sandbox.show(["suite", "wrap", "notes"]), @"
    exit 1
    --- stderr
    error: the server 'notes' is already wrapped; `switchboard suite unwrap notes` removes the wrapper
    ");
    assert_snapshot!(sandbox.show(["suite", "remove", "notes"]), @"
    exit 1
    --- stderr
    error: the server 'notes' is wrapped
    hint: `switchboard suite unwrap notes` first
    ");
    assert_snapshot!(sandbox.show(["suite", "unwrap", "notes"]), @"
    exit 0
    --- stdout
    notes is what it was.
    ");
    assert_eq!(files::tree(sandbox.file("mcps")), before);
    assert_snapshot!(sandbox.show(["suite", "unwrap", "notes"]), @"
    exit 5
    --- stderr
    error: the server 'notes' is not wrapped; `switchboard suite wrap notes` wraps it
    ");
}
