//! The official servers: their direct answers and those through a suite are identical.

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::process::command;
use test_support::{Running, tools};

use super::{add, call, client, npm, pypi, raise_timeouts, sandbox};

/// Returns every tool of `everything`, with arguments.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("echo", json!({ "message": "grüß dich\n\"1\"" })),
        ("get-annotated-message", json!({ "messageType": "error", "includeImage": true })),
        ("get-resource-links", json!({ "count": 4 })),
        ("get-resource-reference", json!({ "resourceType": "Blob", "resourceId": 2 })),
        ("get-structured-content", json!({ "location": "Chicago" })),
        ("get-sum", json!({ "a": 2, "b": 0.5 })),
        ("get-tiny-image", json!({})),
        (
            "gzip-file-as-resource",
            json!({ "name": "a.gz", "data": "data:text/plain,abc", "outputType": "resource" }),
        ),
        ("toggle-simulated-logging", json!({})),
        ("toggle-subscriber-updates", json!({})),
        ("trigger-long-running-operation", json!({ "duration": 0.2, "steps": 2 })),
        ("simulate-research-query", json!({ "topic": "birds" })),
    ]
}

/// Tools whose result contains the time or the machine.
const PASSING: [&str; 4] = [
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "simulate-research-query",
    "get-resource-reference",
];

/// Removes what differs from call to call.
fn stable(tool: &str, mut result: Value) -> Value {
    if PASSING.contains(&tool)
        && let Some(blocks) = result["content"].as_array_mut()
    {
        for block in blocks {
            let kind = block["type"].clone();
            *block = json!({ "type": kind });
        }
    }
    result
}

#[test]
fn everything_answers_identically_through_its_suite() {
    let server = match npm("everything", &[]) {
        Ok(server) => server,
        Err(reason) => return tools::skip("everything_answers_identically_through_its_suite", &reason),
    };
    let sandbox = sandbox();
    add(&sandbox, "everything", &server);
    let mut through = client(&sandbox);
    let mut direct = Client::stdio(Running::start_with_stdin(command(&server[0]).args(&server[1..])));
    let mut listed = direct.tool_names();
    for (tool, args) in calls() {
        let theirs = direct.request("tools/call", json!({ "name": tool, "arguments": args }));
        let ours = through
            .request("tools/call", json!({ "name": "everything_suite", "arguments": call(tool, args) }));
        let (theirs, ours) =
            (theirs.map(|result| stable(tool, result)), ours.map(|result| stable(tool, result)));
        assert_eq!(ours, theirs, "{tool}");
        listed.retain(|name| name != tool);
    }
    assert_eq!(listed, ["get-env"], "called below, because its answer is not the same on purpose");
}

#[test]
fn server_sees_only_its_environment() {
    let server = match npm("everything", &[]) {
        Ok(server) => server,
        Err(reason) => return tools::skip("suites_p13", &reason),
    };
    let sandbox = sandbox();
    let mut args = vec!["suite", "add", "everything", "--env", "DECLARED=${OPENAI_API_KEY:-none}", "--"];
    args.extend(server.iter().map(String::as_str));
    sandbox.ok(args);
    let mut command = sandbox.session(["mcp"]);
    for secret in
        ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "ANTHROPIC_API_KEY", "SSH_AUTH_SOCK", "SWITCHBOARD_TOKEN"]
    {
        command.env(secret, "hunter2");
    }
    command.env("OPENAI_API_KEY", "sk-declared");
    let mut through = Client::stdio(Running::start_with_stdin(&mut command));
    let result = through.request(
        "tools/call",
        json!({ "name": "everything_suite", "arguments": call("get-env", json!({})) }),
    );
    let result = result.unwrap();
    let env: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(env["DECLARED"], "sk-declared");
    assert!(!env.to_string().contains("hunter2"), "{env}");
    let shown = sandbox.ok(["suite", "list"]) + &sandbox.ok(["--json", "suite", "list"]);
    assert!(!shown.contains("sk-declared"), "{shown}");
}

#[test]
fn official_servers_work_through_a_suite() {
    let sandbox = sandbox();
    raise_timeouts(&sandbox);
    let folder = sandbox.path().display().to_string();
    test_support::files::put(sandbox.path().join("notes.txt"), "from a file");
    let git = test_support::process::command("git").args(["init", "-q"]).current_dir(sandbox.path()).status();
    assert!(git.unwrap().success());
    let servers = [
        ("memory", npm("memory", &[]), "read_graph", json!({}), "entities"),
        (
            "filesystem",
            npm("filesystem", &[&folder]),
            "read_text_file",
            json!({ "path": sandbox.path().join("notes.txt") }),
            "from a file",
        ),
        (
            "thinking",
            npm("sequential-thinking", &[]),
            "sequentialthinking",
            json!({ "thought": "t", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1 }),
            "thoughtNumber",
        ),
        (
            "time",
            pypi("mcp-server-time", &[]),
            "get_current_time",
            json!({ "timezone": "Europe/Vienna" }),
            "Vienna",
        ),
        (
            "git",
            pypi("mcp-server-git", &["--repository", &folder]),
            "git_status",
            json!({ "repo_path": folder }),
            "branch",
        ),
    ];
    for (name, server, ..) in &servers {
        match server {
            Ok(server) => add(&sandbox, name, server),
            Err(reason) => return tools::skip("official_servers_work_through_a_suite", reason),
        }
    }
    let mut through = client(&sandbox);
    for (name, _, tool, args, expected) in servers {
        let suite = format!("{name}_suite");
        let result =
            through.request("tools/call", json!({ "name": suite, "arguments": call(tool, args) })).unwrap();
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(result["isError"] != true && text.contains(expected), "{name}: {result}");
    }
    // A person can call the same tools as a model.
    let output = sandbox.ok([
        "suite",
        "call",
        "time",
        "convert_time",
        "source_timezone=UTC",
        "time=12:00",
        "target_timezone=Asia/Tokyo",
    ]);
    assert!(output.contains("Tokyo"), "{output}");
}
