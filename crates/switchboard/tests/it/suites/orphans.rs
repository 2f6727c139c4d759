//! No process outlives the client that it was started for.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use serde_json::json;
use test_support::Sandbox;
use test_support::mcp::Client;
use test_support::poll;

use super::{add, call, client, fixture, sandbox};

/// How often the host is killed; `SWITCHBOARD_ORPHAN_ROUNDS` sets another number.
const ROUNDS: usize = 200;
const CHILDREN: usize = 5;

/// A child that starts a child of its own; neither ends without help. Each records its process id.
const SCRIPT: &str = r#"
trap '' TERM HUP INT
echo $$ >> "$1"
sh -c 'trap "" TERM HUP INT; echo $$ >> "$1"; while :; do sleep 1000; done' sh "$1" < /dev/null > /dev/null &
while read -r line; do
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"here","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":3,"result":{"content":[]}}' ;;
  esac
done
while :; do sleep 1000; done
"#;

fn add_servers(sandbox: &Sandbox, pids: &Path) {
    test_support::files::put(sandbox.path().join("stubborn.sh"), SCRIPT);
    for number in 0..CHILDREN {
        let script = sandbox.path().join("stubborn.sh").display().to_string();
        add(sandbox, &format!("s{number}"), &["sh".to_owned(), script, pids.display().to_string()]);
    }
}

/// Starts all children of a workspace, one after the other.
fn start_all(client: &mut Client) {
    let begun: Vec<i64> = (0..CHILDREN)
        .map(|number| client.start_call(&format!("s{number}_suite"), call("here", json!({}))))
        .collect();
    for id in begun {
        client.answer(id).unwrap();
    }
}

fn numbers(pids: &Path) -> BTreeSet<i32> {
    let text = std::fs::read_to_string(pids).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn alive(pids: &BTreeSet<i32>) -> Vec<i32> {
    let is_alive = |pid: &&i32| Pid::from_raw(**pid).is_some_and(|pid| test_kill_process(pid).is_ok());
    pids.iter().filter(is_alive).copied().collect()
}

#[test]
fn disconnected_host_leaves_no_server() {
    let sandbox = sandbox();
    let pids = sandbox.path().join("pids");
    add_servers(&sandbox, &pids);
    let mut client = client(&sandbox);
    start_all(&mut client);
    let all = poll::until("all processes to write", || {
        Some(numbers(&pids)).filter(|all| all.len() == 2 * CHILDREN)
    });
    client.process().close_stdin();
    let left = poll::within(poll::TIMEOUT, || Some(alive(&all)).filter(Vec::is_empty));
    assert!(left.is_some(), "there are still {:?}", alive(&all));
}

#[test]
fn killed_host_leaves_no_server() {
    let rounds = std::env::var("SWITCHBOARD_ORPHAN_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(ROUNDS);
    let sandbox = sandbox();
    let pids = sandbox.path().join("pids");
    add_servers(&sandbox, &pids);
    // Their tools are cached, so that a start is only a start.
    sandbox.ok(["suite", "warm"]);
    for round in 0..rounds {
        let mut client = client(&sandbox);
        if round % 2 == 0 {
            start_all(&mut client);
        } else {
            // During the start.
            for number in 0..CHILDREN {
                client.start_call(&format!("s{number}_suite"), call("here", json!({})));
            }
            let some = (round % 10) * 2;
            poll::within(Duration::from_millis(200), || {
                (numbers(&pids).len() > round * 2 + some).then_some(())
            });
        }
        client.process().kill();
    }
    let all = numbers(&pids);
    assert!(all.len() > rounds * CHILDREN, "only {} processes were started", all.len());
    let left = poll::within(poll::TIMEOUT, || Some(alive(&numbers(&pids))).filter(Vec::is_empty));
    assert!(left.is_some(), "left over: {:?}", alive(&numbers(&pids)));
}

#[test]
fn server_stderr_is_readable() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("chatty.py"));
    let _ = client(&sandbox)
        .request("tools/call", json!({ "name": "echo_suite", "arguments": { "action": "introspect" } }));
    let logs = sandbox.ok(["suite", "logs", "echo"]);
    assert!(!logs.trim().is_empty());
}

#[test]
fn doctor_names_servers_that_fail() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    assert!(sandbox.ok(["doctor"]).contains("1 server, all trusted"));
    let folder = sandbox.path().join(".switchboard/mcps");
    std::fs::create_dir_all(folder.join("theirs")).unwrap();
    test_support::files::put(folder.join("theirs/.mcp.json"), r#"{"command":"sh","args":["-c","id"]}"#);
    let report = sandbox.ok(["doctor"]);
    assert!(
        report.contains("theirs is not trusted") && report.contains("switchboard suite trust theirs"),
        "{report}"
    );
}
