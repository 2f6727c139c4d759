//! `switchboard mcp` as a process: what it writes, and when it ends.

use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::poll::TIMEOUT;
use test_support::process::command;
use test_support::{Running, Sandbox};

use super::{stdio, task};
use crate::{BINARY, workspace};

/// Waits for the end of stdout, which is when the last process that had it open has ended.
fn ends_in_time(process: &Running) {
    assert!(process.lines_until(Instant::now() + TIMEOUT, &mut Vec::new()), "it is still there");
}

/// Starts a waiting call in a session. Requests are read in order, so once the second is answered, the first one has
/// started.
fn start_waiting_call(client: &mut Client) {
    client.ok("register_chat_agent", json!({ "name": "codex" }));
    client.start_call("wait_for_message", json!({ "timeout": 600 }));
    client.request("ping", json!({})).unwrap();
}

#[test]
fn closed_stdin_ends_despite_waiting_call() {
    let sandbox = workspace();
    let mut client = stdio(&sandbox, None);
    start_waiting_call(&mut client);
    let process = client.process();
    process.close_stdin();
    ends_in_time(process);
    assert_eq!(process.wait().code(), Some(0), "{}", process.errors());
}

#[test]
fn signal_ends_despite_waiting_call() {
    let sandbox = workspace();
    let mut client = stdio(&sandbox, None);
    start_waiting_call(&mut client);
    let process = client.process();
    process.signal(Signal::TERM);
    ends_in_time(process);
    assert_eq!(process.wait().code(), Some(0), "{}", process.errors());
}

/// Starts the server as a child of a shell, next to another child with the same stdin.
fn below_a_shell(sandbox: &Sandbox) -> Client {
    let script = r#"exec 3<&0; sleep 60 <&3 >/dev/null 2>&1 & "$0" mcp <&3 & wait"#;
    let mut shell = command("sh");
    shell.args(["-c", script, BINARY]).current_dir(sandbox.path()).env("HOME", sandbox.home());
    Client::stdio(Running::start_with_stdin(&mut shell))
}

#[test]
fn killed_parent_ends_despite_open_pipe() {
    let sandbox = workspace();
    let mut client = below_a_shell(&sandbox);
    start_waiting_call(&mut client);
    // Our end of stdin stays open as well: only the end of the parent shows that the session is over.
    let shell = client.process();
    shell.kill();
    ends_in_time(shell);
}

/// Starts the server as `npx` does: Node, a shell below it, the server below that.
fn below_npx(sandbox: &Sandbox, shell: bool) -> Client {
    let script = "const [bin, shell] = process.argv.slice(1);
        const child = require('child_process').spawn(bin, ['mcp'], { stdio: 'inherit', shell: shell === 'yes' });
        child.on('exit', (code) => process.exit(code ?? 1));";
    let mut node = command("node");
    node.args(["-e", script, BINARY, if shell { "yes" } else { "no" }]);
    node.current_dir(sandbox.path()).env("HOME", sandbox.home());
    Client::stdio(Running::start_with_stdin(&mut node))
}

#[test]
fn closed_stdin_ends_below_wrapper() {
    for shell in [false, true] {
        let sandbox = workspace();
        let mut client = below_npx(&sandbox, shell);
        start_waiting_call(&mut client);
        let wrapper = client.process();
        wrapper.close_stdin();
        ends_in_time(wrapper);
        assert_eq!(wrapper.wait().code(), Some(0), "{}", wrapper.errors());
    }
}

#[test]
fn killed_wrapper_ends_server() {
    let sandbox = workspace();
    let mut client = below_npx(&sandbox, false);
    start_waiting_call(&mut client);
    let wrapper = client.process();
    wrapper.kill();
    ends_in_time(wrapper);
}

#[test]
fn stdout_has_only_the_protocol() {
    let sandbox = workspace();
    let mut command = sandbox.session(["mcp", "-vvv"]);
    command.env("SWITCHBOARD_LOG", "trace").stdin(Stdio::piped());
    let mut process = Running::start(&mut command);
    let call = |id: i64, tool: &str, arguments: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
            .to_string()
    };
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    let lines = [
        initialize.to_string(),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string(),
        call(2, "register_chat_agent", json!({ "name": "claude" })),
        call(3, "send_message", task("codex", "one\ntwo\r\nthree\u{2028}four")),
        "this is no JSON".to_owned(),
        call(4, "send_message", task("nobody", "text")),
        call(5, "no_such_tool", json!({})),
    ];
    for line in &lines {
        process.write_line(line).unwrap();
    }
    let mut answered = Vec::new();
    while answered.len() < 6 {
        let line = process.line();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        answered.push(message["id"].as_i64());
    }
    answered.sort_unstable();
    assert_eq!(answered, [None, Some(1), Some(2), Some(3), Some(4), Some(5)]);
    process.close_stdin();
    let (status, rest) = process.wait_for_rest(TIMEOUT);
    assert_eq!((status.code(), rest), (Some(0), Vec::new()));
    let log = process.errors();
    assert!(log.contains("TRACE") && log.contains("DEBUG"), "there was something to log: {log}");
}

#[test]
fn results_follow_the_session_revision() {
    let sandbox = workspace();
    let mut client = stdio(&sandbox, None);
    client.ok("register_chat_agent", json!({ "name": "codex" }));
    let result = client.request("tools/call", json!({ "name": "check_inbox", "arguments": {} })).unwrap();
    assert!(result["content"].is_array() && result.get("resultType").is_none(), "{result}");
    let error = client.request("tools/call", json!({ "name": "check_inbox", "arguments": [1] })).unwrap_err();
    assert_eq!(error["code"], -32602, "{error}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("arguments")), "{error}");
}

/// Calls of one client are journaled in the order in which it sent them, however many it sends without waiting.
#[test]
fn pipelined_sends_retain_their_order() {
    const CALLS: usize = 250;
    for is_served in [false, true] {
        let sandbox = workspace();
        let _serve = is_served.then(|| sandbox.serve());
        let mut client = stdio(&sandbox, Some("claude"));
        for round in 0..4 {
            let texts: Vec<String> = (0..CALLS).map(|number| format!("{round} {number}")).collect();
            let send = |text: &String| client.start_call("send_message", task("codex", text));
            let calls: Vec<i64> = texts.iter().map(send).collect();
            for call in calls {
                client.answer(call).unwrap();
            }
            let newest = sandbox.json(["tail", "-n", &CALLS.to_string()]);
            let journaled: Vec<&str> = newest.iter().map(|one| one["body"].as_str().unwrap()).collect();
            assert_eq!(journaled, texts, "served: {is_served}");
        }
    }
}
