//! `switchboard worker`, verb by verb, next to a running `serve`.

use serde_json::Value;

use test_support::{RunOutput, Sandbox, files, poll};

use super::schema;
use crate::workspace;

/// An agent that requests approval before it does anything.
pub(super) const ASKING: &str = r#"
import sys, json
def out(value): print(json.dumps({"jsonrpc": "2.0", **value}), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    method = said.get("method")
    if method == "initialize": out({"id": said["id"], "result": {"protocolVersion": 1}})
    elif method == "session/new": out({"id": said["id"], "result": {"sessionId": "s"}})
    elif method == "session/prompt":
        prompt = said["id"]
        call = {"toolCallId": "c", "title": "Tidy up", "rawInput": {"command": "rm -r target", "force": True}}
        options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
        out({"id": 99, "method": "session/request_permission",
             "params": {"sessionId": "s", "toolCall": call, "options": options}})
    elif said.get("id") == 99: out({"id": prompt, "result": {"stopReason": "end_turn"}})
"#;

/// A client that writes the router's own lines to its socket and prints the answers.
const SOCKET_CLIENT: &str = r#"
import sys, json, socket
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
answers = client.makefile()
def ask(number, command, payload):
    line = {"protocol": "codeswarm.router.v1", "type": "command", "command": command, "request_id": str(number),
            "timestamp": "2026-01-01T00:00:00Z", "payload": payload}
    client.sendall((json.dumps(line) + "\n").encode())
    while True:
        answer = json.loads(answers.readline())
        if answer["data"].get("request_id") == str(number): return print(answer["event"], json.dumps(answer["data"]))
ask(1, "hello", {"agent": "human"})
ask(2, "approve", {"approval_id": sys.argv[2], "decision": "accept"})
"#;

fn launch(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.ok([&["worker", "launch", "--agent"], args].concat())
}

fn status(sandbox: &Sandbox, job: &str) -> Value {
    sandbox.json(["worker", "status", job]).remove(0)
}

fn is_refused(ran: &RunOutput, code: i32, part: &str) {
    assert!(ran.code == Some(code) && ran.stderr.contains(part), "{ran:?}");
}

#[test]
fn approval_is_never_given_unseen() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let script = sandbox.path().join("asking.py");
    files::put(&script, ASKING);
    let job = launch(&sandbox, &["acp", "--", "python3", script.to_str().unwrap()]);
    assert!(sandbox.run(["worker", "approve"]).stderr.contains("No agent asks for anything"));
    sandbox.ok(["worker", "inject", &job, "tidy up"]);
    let approval = poll::until("a question", || sandbox.json(["worker", "approve"]).pop());
    let shown = sandbox.ok(["worker", "approve"]);
    for part in ["Tidy up", "command: rm -r target", "\"force\": true"] {
        assert!(shown.contains(part), "{shown}");
    }
    let id = approval["approval_id"].as_str().unwrap();
    is_refused(&sandbox.run_as("claude", ["worker", "approve", id, "--yes"]), 4, "only a person");
    let socket = sandbox.file("router.sock");
    let mut client = test_support::process::command("python3");
    client.args(["-c", SOCKET_CLIENT, socket.to_str().unwrap(), id]).env("SWITCHBOARD_AGENT_NAME", "claude");
    let answers = RunOutput::of(&mut client).ok();
    assert_eq!(answers.matches("only a person may").count(), 2, "{answers}");
    assert!(sandbox.ok(["worker", "approve", id, "--yes"]).contains("accept"));
    is_refused(&sandbox.run(["worker", "approve", id, "--yes"]), 5, "`switchboard worker approve` lists");
    poll::until("the end of the turn", || (status(&sandbox, &job)["nodes"][0]["turns"] == 1).then_some(()));
}

/// The kernel accepts the connection for a stopped process; the answer never arrives.
#[test]
fn stopped_serve_fails_worker_verbs() {
    let sandbox = workspace();
    let serve = sandbox.serve();
    sandbox.ok(["worker", "list"]);
    serve.signal(rustix::process::Signal::STOP);
    let verbs: [&[&str]; 3] = [&["worker"], &["worker", "launch", "--agent", "echo"], &["worker", "queue"]];
    for verb in verbs {
        let ran = sandbox.run(verb);
        is_refused(&ran, 3, "the router does not answer");
        assert!(ran.stderr.contains(&format!("kill -CONT {}", serve.id())), "{ran:?}");
    }
    serve.signal(rustix::process::Signal::CONT);
    sandbox.ok(["worker", "list"]);
}

/// An agent that requests approval for exactly the text of its prompt.
const ASKING_FOR: &str = r#"
import sys, json
def out(value): print(json.dumps({"jsonrpc": "2.0", **value}), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    method = said.get("method")
    if method == "initialize": out({"id": said["id"], "result": {"protocolVersion": 1}})
    elif method == "session/new": out({"id": said["id"], "result": {"sessionId": "s"}})
    elif method == "session/prompt":
        command = said["params"]["prompt"][0]["text"]
        call = {"toolCallId": "c", "title": "Tidy up", "rawInput": {"command": command}}
        out({"id": 99, "method": "session/request_permission",
             "params": {"sessionId": "s", "toolCall": call,
                        "options": [{"optionId": "yes", "kind": "allow_once"}]}})
"#;

#[test]
fn approval_shows_full_command_and_hash() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let script = sandbox.path().join("asking.py");
    files::put(&script, ASKING_FOR);
    let job = launch(&sandbox, &["acp", "--", "python3", script.to_str().unwrap()]);
    let padding = "x".repeat(20_000);
    let hidden = "\u{202e}\u{200d}\u{1b}[2K\u{a0}c\u{430}t \u{441}\u{430}\u{442}";
    let command = format!("echo {padding}{hidden}\n && rm -rf / привет");
    sandbox.ok(["worker", "inject", &job, &command]);
    let approval = poll::until("a question", || sandbox.json(["worker", "approve"]).pop());
    // Programs get the command unchanged.
    assert_eq!(approval["command"], command.as_str());
    let visible = "\\u{202e}\\u{200d}\\u{1b}[2K\\u{a0}c\\u{430}t \\u{441}\\u{430}\\u{442}";
    let hash = approval["hash"].as_str().unwrap();
    assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    let listed = sandbox.ok(["worker", "approve"]);
    let line = listed.lines().find(|line| line.trim_start().starts_with("command: ")).unwrap();
    assert_eq!(line.trim_start(), format!("command: echo {padding}{visible}"));
    // A second line still belongs to the command.
    assert!(listed.contains("\n     && rm -rf / привет\n"), "{}", &listed[listed.len() - 300..]);
    assert!(listed.contains(&format!("sha256: {hash}")), "{listed}");
    assert!(listed.chars().all(|c| c == '\n' || !c.is_control()));
    // The same request has the same hash, another request has another.
    sandbox.ok(["worker", "approve", approval["approval_id"].as_str().unwrap(), "cancel", "--yes"]);
    for (text, is_same) in [(command.as_str(), true), ("echo x", false)] {
        let other = launch(&sandbox, &["acp", "--", "python3", script.to_str().unwrap()]);
        sandbox.ok(["worker", "inject", &other, text]);
        let is_of = |ask: &Value| ask["job_id"] == other.as_str();
        let approval =
            poll::until("a question", || sandbox.json(["worker", "approve"]).into_iter().find(is_of));
        assert_eq!(approval["hash"] == hash, is_same, "{text}");
    }
}

#[test]
fn job_with_several_nodes_needs_node_name() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let job = launch(&sandbox, &["command", "--nodes", "2", "--", "sleep", "1000"]);
    is_refused(&sandbox.run(["worker", "interrupt", &job]), 3, "no turn runs");
    sandbox.ok(["worker", "inject", &job, "wait"]);
    poll::until("two turns", || {
        let status = status(&sandbox, &job);
        status["nodes"].as_array().unwrap().iter().all(|node| node["status"] == "busy").then_some(())
    });
    sandbox.ok(["worker", "inject", &format!("{job}/1"), "what comes next\nand more"]);
    let queued = sandbox.ok(["worker", "queue", &job]);
    assert!(queued.starts_with(&format!("{job}/1  ")) && queued.ends_with("what comes next"), "{queued}");
    is_refused(&sandbox.run(["worker", "steer", &job, "more"]), 2, &format!("{job}/0 to {job}/1"));
    is_refused(&sandbox.run(["worker", "logs", &job]), 2, "has 2 nodes");
    let stopped = sandbox.ok(["worker", "interrupt", &job]);
    assert_eq!(stopped, format!("Asked {job}/0 to stop.\nAsked {job}/1 to stop."));
    poll::until("both to have stopped", || {
        let status = status(&sandbox, &job);
        status["nodes"].as_array().unwrap().iter().all(|node| node["turns"] == 1).then_some(())
    });
}

#[test]
fn unawaited_injection_prints_ids_only() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let job = launch(&sandbox, &["command", "--nodes", "8", "--", "false"]);
    assert!(sandbox.run(["worker", "queue"]).stderr.contains("Nothing waits"));
    let output = sandbox.json(["worker", "inject", &format!("job:{job}"), "x"]);
    let nodes: Vec<_> = output.iter().filter_map(|ack| ack["node_id"].as_u64()).collect();
    assert_eq!(nodes, (0..8).collect::<Vec<_>>(), "{output:?}");
    let failed = sandbox.run(["worker", "inject", &job, "x", "--wait"]);
    is_refused(&failed, 1, "8 of the turns did not complete");
}

#[test]
fn job_follower_sees_router_end() {
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    let job = launch(&sandbox, &["echo"]);
    let mut attached = sandbox.start(["--json", "worker", "attach", &job, "--since", "0"]);
    sandbox.ok(["worker", "inject", &job, "hello", "--wait"]);
    while schema::event(&attached.line())["event"] != "turn_complete" {}
    assert!(serve.terminate().success());
    let (status, lines) = attached.wait_for_rest(poll::TIMEOUT);
    assert_eq!(status.code(), Some(3), "{lines:?}");
    is_refused(&sandbox.run(["worker", "logs", "nobody"]), 5, "no log of nobody/0");
}

#[test]
fn job_name_follows_node_rules() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let job = launch(&sandbox, &["echo"]);
    let (typo, node) = (format!("{job}x"), format!("{job}/0"));
    for verb in ["status", "queue", "terminate"] {
        is_refused(&sandbox.run(["worker", verb, &typo]), 5, &format!("did you mean '{job}'?"));
        is_refused(&sandbox.run(["worker", verb, &node]), 2, &format!("write {job}"));
        sandbox.ok(["worker", verb, &format!("job:{job}")]);
    }
    let over = sandbox.run(["--json", "worker", "inject", &job, "x"]);
    assert!(over.code == Some(1) && over.stdout.contains("\"job_over\""), "{over:?}");
}

#[test]
fn logs_show_node_output_of_any_size() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let silent = launch(&sandbox, &["echo"]);
    let output = sandbox.run(["worker", "logs", &silent]);
    assert!(output.code == Some(0) && output.stderr.contains("has written nothing"), "{output:?}");
    is_refused(&sandbox.run(["worker", "logs", &format!("{silent}/9")]), 5, "has no node 9");
    is_refused(&sandbox.run(["worker", "logs", "nobody"]), 5, "no job 'nobody'");
    // Just enough output to rotate the first part of the log.
    let script = "i=0; while [ $i -lt 80 ]; do printf '%4000s %d\\n' x $i >&2; i=$((i+1)); done";
    let loud = launch(&sandbox, &["command", "--", "sh", "-c", script]);
    sandbox.ok(["worker", "inject", &loud, "x", "--wait"]);
    assert!(sandbox.file(&format!("workers/{loud}/node-0.log.1")).exists());
    let lines = sandbox.ok(["worker", "logs", &loud, "-n", "70"]);
    assert!(lines.lines().count() == 70 && lines.ends_with(" 79"), "{} lines", lines.lines().count());
}

#[test]
fn attach_refuses_ended_or_unknown_node() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let job = launch(&sandbox, &["echo"]);
    is_refused(&sandbox.run(["worker", "attach", &format!("{job}/9")]), 5, "has no node 9");
    is_refused(&sandbox.run(["worker", "attach", &job, "--since", "999999"]), 2, "the newest is");
    sandbox.ok(["worker", "inject", &job, "hello", "--wait"]);
    sandbox.ok(["worker", "terminate", &job]);
    let over = sandbox.run(["worker", "attach", &job]);
    assert!(over.code == Some(0) && over.stderr.contains("has ended"), "{over:?}");
    assert!(sandbox.ok(["worker", "attach", &job, "--since", "0"]).contains("hello"));
    // All of it has been shown, and nothing will follow.
    let kept = sandbox.ok(["--json", "worker", "attach", &job, "--since", "0"]);
    let newest = kept.lines().map(schema::event).next_back().unwrap();
    let since = newest["seq"].to_string();
    assert_eq!(sandbox.ok(["worker", "attach", &job, "--since", &since]), "");
}

#[test]
fn launch_inherits_variables_and_reports_limits() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let mut command =
        sandbox.command(["worker", "launch", "--agent", "command", "--env", "FOO", "--", "printenv", "FOO"]);
    let job = RunOutput::of(command.env("FOO", "from here")).ok();
    assert_eq!(sandbox.ok(["worker", "inject", &job, "x", "--wait"]), "from here");
    let job = launch(&sandbox, &["command", "--input", "argument", "--", "echo", "said:"]);
    assert_eq!(sandbox.ok(["worker", "inject", &job, "hello", "--wait"]), "said: hello");
    for (args, code, part) in [
        (&["echo", "--env", "=x"][..], 2, "has no name"),
        (&["echo", "--env", "NOT_SET_ANYWHERE_AT_ALL"], 2, "is not set here"),
        (
            &["claude", "--sandbox", "read-only", "--", "sh"],
            2,
            "--sandbox: agent 'claude' has no such setting",
        ),
        (&["echo", "--ask", "never"], 2, "--ask: agent 'echo' has no such setting"),
        (&["echo", "--nodes", "65"], 2, "--nodes: must be 1 to 64"),
        (&["echo", "--timeout", "0s"], 2, "'0s' is no time at all"),
        (&["echo", "--cwd", "nowhere"], 2, "--cwd: the folder"),
        (&["command"], 2, "PROGRAM: agent 'command' needs"),
        (&["acp", "--", "no-such-program-anywhere"], 1, "no program 'no-such-program-anywhere'"),
    ] {
        let ran = sandbox.run([&["worker", "launch", "--agent"], args].concat());
        is_refused(&ran, code, part);
    }
    let bad = sandbox.run(["worker", "launch", "--agent", "echo", "--nodes", "0"]);
    is_refused(&bad, 2, "switchboard worker launch --help");
}
