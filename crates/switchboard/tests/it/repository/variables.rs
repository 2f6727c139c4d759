//! Variables that servers need, and those that every program gets.

use serde_json::{Value, json};
use test_support::{RunOutput, Sandbox, files};

use crate::{bare, workspace};

/// Adds a server that records its variables, and ends.
fn spy(sandbox: &Sandbox) -> Value {
    let seen = sandbox.path().join("seen");
    json!({ "command": "sh", "args": ["-c", format!("env > {}", seen.display())] })
}

#[test]
fn suite_without_its_variable_is_listed() {
    let sandbox = workspace();
    let args =
        ["suite", "add", "github", "--env", "GITHUB_TOKEN=${GITHUB_TOKEN}", "--", "sh", "-c", "exit 1"];
    sandbox.ok(args);
    let listed = sandbox.ok(["suite", "list"]);
    assert!(listed.starts_with("github (github_suite"), "{listed}");
    assert!(listed.contains("needs the variable GITHUB_TOKEN, which is not set"), "{listed}");
    let doctor = sandbox.run(["doctor"]);
    assert!(doctor.stdout.contains("github cannot be started"), "{doctor:?}");
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ];
    let input: String = lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect();
    let tools = RunOutput::with_input(&mut sandbox.command(["mcp"]), input.as_bytes()).ok();
    assert!(tools.contains("github_suite") && tools.contains("needs the variable GITHUB_TOKEN"), "{tools}");
    let ran = RunOutput::of(sandbox.command(["suite", "list"]).env("GITHUB_TOKEN", "x"));
    assert!(!ran.ok().contains("needs the variable"), "{ran:?}");
}

#[test]
fn init_forwards_needed_variables() {
    let sandbox = bare();
    let servers = json!({ "mcpServers": {
        "github": { "command": "npx", "args": ["server"], "env": { "TOKEN": "${GITHUB_TOKEN}", "H": "${HOME}" } },
        "notes": { "type": "http", "url": "https://${NOTES_HOST:-notes.example}/mcp" },
    } });
    files::put(sandbox.path().join(".mcp.json"), servers.to_string());
    sandbox.ok(["init"]);
    let written = files::read_json_object(&sandbox.path().join(".mcp.json")).unwrap();
    let env = &written["mcpServers"]["switchboard"]["env"];
    assert_eq!(*env, json!({ "GITHUB_TOKEN": "${GITHUB_TOKEN}", "NOTES_HOST": "${NOTES_HOST:-}" }));
}

#[test]
fn child_has_proxy_and_certificates() {
    let sandbox = workspace();
    let spy = spy(&sandbox);
    let mut add = vec!["suite", "add", "spy", "--"];
    add.extend(
        std::iter::once(&spy["command"]).chain(spy["args"].as_array().unwrap()).filter_map(Value::as_str),
    );
    sandbox.ok(add);
    let mut command = sandbox.command(["suite", "warm"]);
    for (name, value) in [
        ("HTTPS_PROXY", "http://me:hunter2hunter2@proxy.example:3128"),
        ("no_proxy", "localhost"),
        ("SSL_CERT_FILE", "/etc/ca.pem"),
        ("NODE_EXTRA_CA_CERTS", "/etc/more.pem"),
        ("SECRET_TOKEN", "stays"),
    ] {
        command.env(name, value);
    }
    let ran = RunOutput::of(&mut command);
    assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
    let seen = std::fs::read_to_string(sandbox.path().join("seen")).unwrap();
    for name in ["HTTPS_PROXY=", "no_proxy=", "SSL_CERT_FILE=", "NODE_EXTRA_CA_CERTS="] {
        assert!(seen.lines().any(|line| line.starts_with(name)), "{name}: {seen}");
    }
    assert!(!seen.contains("SECRET_TOKEN"), "{seen}");
}
