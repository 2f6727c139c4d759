//! The official clients: the Inspector, the TypeScript SDK and the Python SDK.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use test_support::process::command;
use test_support::{RunOutput, Sandbox, TestServer, tools};

use crate::{BINARY, bare, workspace};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/clients");

/// The three transports, as the scripts name them.
const TRANSPORTS: [&str; 3] = ["stdio", "http", "sse"];

/// Returns what every client must see over every transport.
fn expected() -> Value {
    json!({
        "server": "switchboard",
        "tools": [
            "send_message", "check_inbox", "ack_message", "wait_for_message", "register_chat_agent",
            "get_team_roster", "send_team_message", "get_receipt", "search_messages", "set_agent_status",
            "register_terminal", "create_team", "assign_to_team", "assign_role", "claim_task",
            "renew_claim", "release_claim", "reserve_files", "start_workflow",
            "get_workflow_state", "complete_workflow_phase", "stop_workflow", "run_in_terminal",
            "handoff_clipboard",
        ],
        "resources": ["switchboard://active-rules", "switchboard://roster", "switchboard://inbox/reader"],
        "registered": "Registered reader.",
        "updated": "switchboard://inbox/reader",
        "waited": ["please look"],
        "isWhatWasSent": true,
        "inbox": ["please look"],
        "resource": ["please look"],
        "acknowledged": 1,
        "receipt": ["acknowledged"],
        "unknown": { "failed": true, "text": "There is no tool 'send_mesage'. Did you mean 'send_message'?" },
    })
}

/// Runs a script of two sessions in its own workspace and compares what it saw.
fn check(mut script: Command, transport: &str, revision: Option<&str>) {
    let sandbox = bare();
    sandbox.ok(["init"]);
    let mut served = TestServer::start(&sandbox);
    script.arg(transport);
    match transport {
        "stdio" => script.arg(BINARY).arg(sandbox.path()),
        "http" => script.args([&served.url("/mcp"), &served.token]),
        _ => script.args([&served.url("/sse"), &served.token]),
    };
    let ran = RunOutput::of(&mut script);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{transport}: {}", ran.stdout);
    let mut saw: Value = serde_json::from_str(&ran.stdout).unwrap();
    // One of the languages writes 15.0.
    let progress = saw.as_object_mut().unwrap().remove("progress").unwrap();
    assert_eq!((progress["progress"].as_f64(), progress["total"].as_f64()), (Some(15.0), Some(60.0)));
    assert_eq!(progress["message"], "waiting for mail");
    if let Some(revision) = revision {
        assert_eq!(saw.as_object_mut().unwrap().remove("revision").unwrap(), revision, "{transport}");
    }
    assert_eq!(saw, expected(), "{transport}");
    assert_eq!((served.running.terminate().code(), served.running.errors().as_str()), (Some(0), ""));
}

#[test]
fn typescript_sdk_over_every_transport() {
    let found = tools::node().and_then(|node| Ok((node, tools::installed("npm/@modelcontextprotocol/sdk")?)));
    let (node, sdk) = match found {
        Ok(found) => found,
        Err(reason) => return tools::skip("typescript_sdk_over_every_transport", &reason),
    };
    thread::scope(|scope| {
        for transport in TRANSPORTS {
            let mut script = command(&node);
            script.env("NODE_PATH", sdk.join("node_modules")).arg(format!("{CLIENTS}/session.cjs"));
            scope.spawn(move || check(script, transport, None));
        }
    });
}

#[test]
fn python_sdk_over_every_transport_and_revision() {
    let python = match tools::installed("pypi/mcp") {
        Ok(venv) => venv.join("bin/python"),
        Err(reason) => return tools::skip("python_sdk_over_every_transport_and_revision", &reason),
    };
    thread::scope(|scope| {
        for (mode, revision) in [("legacy", "2025-11-25"), ("auto", "2026-07-28")] {
            for transport in TRANSPORTS {
                let mut script = command(&python);
                script.arg(format!("{CLIENTS}/session.py")).arg(mode);
                scope.spawn(move || check(script, transport, Some(revision)));
            }
        }
    });
}

/// The Inspector, with the arguments that select the server.
struct Inspector {
    node: PathBuf,
    launcher: PathBuf,
}

impl Inspector {
    fn find() -> Result<Self, String> {
        let package = tools::installed("npm/@modelcontextprotocol/inspector")?;
        let launcher =
            "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js".as_ref() as &Path;
        Ok(Self { node: tools::node()?, launcher: package.join(launcher) })
    }

    /// Runs one method; returns its result.
    fn run(&self, sandbox: &Sandbox, target: &[&str], method: &[&str]) -> Value {
        let mut inspector = command(&self.node);
        inspector.current_dir(sandbox.path()).env("HOME", sandbox.home()).arg(&self.launcher);
        inspector.arg("--cli").args(target).args(["--format", "json", "--method"]).args(method);
        let ran = RunOutput::of(&mut inspector);
        let answer: Value = serde_json::from_str(&ran.ok()).unwrap();
        answer["result"].clone()
    }
}

#[test]
fn inspector_lists_and_calls_over_every_transport() {
    let inspector = match Inspector::find() {
        Ok(inspector) => inspector,
        Err(reason) => {
            return tools::skip("inspector_lists_and_calls_over_every_transport", &reason);
        }
    };
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let (mcp, sse) = (served.url("/mcp"), served.url("/sse"));
    let bearer = format!("Authorization: Bearer {}", served.token);
    let headers = ["--header", bearer.as_str(), "--header", "Switchboard-Agent: claude"];
    let targets: [Vec<&str>; 3] = [
        vec![BINARY, "mcp", "--from", "claude"],
        [&[mcp.as_str(), "--transport", "http"], &headers[..]].concat(),
        [&[sse.as_str(), "--transport", "sse"], &headers[..]].concat(),
    ];
    let expected = expected();
    for (number, target) in targets.iter().enumerate() {
        let list = inspector.run(&sandbox, target, &["tools/list"]);
        let names: Vec<&Value> = list["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(json!(names), expected["tools"]);
        let payload = format!("from transport {number}");
        let arguments = super::task("codex", &payload).to_string();
        let call = ["tools/call", "--tool-name", "send_message", "--tool-args-json", &arguments];
        let sent = inspector.run(&sandbox, target, &call);
        assert_eq!(sent["isError"], false, "{sent}");
        let mail = sandbox.json(["inbox", "codex"]);
        let last = mail.last().unwrap();
        assert_eq!((&last["body"], &last["from"]), (&json!(payload), &json!("claude")));
        assert_eq!(last["native_id"], sent["structuredContent"]["id"]);
    }
}
