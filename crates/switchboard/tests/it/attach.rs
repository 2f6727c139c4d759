//! `switchboard mcp` attached to `serve`: `serve` answers, and sessions continue when it ends or is stopped.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use switchboard_sys::platform::is_process_stopped;
use switchboard_sys::socket;
use test_support::mcp::Client;
use test_support::{Running, Sandbox, poll};

use crate::BINARY;

/// An MCP server that records its process id, answers `here` at once and `never` not at all.
const CHILD: &str = r#"
echo $$ >> "$1"
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"here","inputSchema":{"type":"object"}},{"name":"never","inputSchema":{"type":"object"}}]}}' ;;
    *'"never"'*) echo asked >> "$2" ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"yes"}]}}' ;;
  esac
done
"#;

fn with_child(agents: &[&str]) -> Sandbox {
    let sandbox = Sandbox::with_agents(BINARY, agents);
    let file = |name: &str| sandbox.home().join(name).display().to_string();
    test_support::files::put(sandbox.home().join("child.sh"), CHILD);
    sandbox.ok(["suite", "add", "child", "--", "sh", &file("child.sh"), &file("pids"), &file("asked")]);
    sandbox
}

fn mcp(sandbox: &Sandbox, more: &[&str]) -> Client {
    let args = ["mcp"].iter().chain(more).copied();
    Client::stdio(Running::start_with_stdin(&mut sandbox.session(args)))
}

fn subtool(name: &str) -> Value {
    json!({ "action": "call", "subtool": name, "args": {} })
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn message_args(to: &str, text: &str) -> Value {
    json!({ "recipient": to, "action": "status_update", "payload": text })
}

#[test]
fn agents_share_one_set_of_servers() {
    let sandbox = with_child(&[]);
    let _serve = sandbox.serve();
    let mut clients: Vec<Client> = (0..20).map(|_| mcp(&sandbox, &[])).collect();
    for client in &mut clients {
        assert_eq!(client.call("child_suite", subtool("here")).text, "yes");
    }
    assert_eq!(lines(&sandbox.home().join("pids")), 1);
    let mut alone = mcp(&sandbox, &["--alone"]);
    assert_eq!(alone.call("child_suite", subtool("here")).text, "yes");
    assert_eq!(lines(&sandbox.home().join("pids")), 2);
    // Each session registers another agent, because a name has one session.
    clients[0].call("register_chat_agent", json!({ "name": "claude" })).ok();
    clients[1].call("register_chat_agent", json!({ "name": "codex" })).ok();
    clients[2].refused("register_chat_agent", json!({ "name": "claude" }));
    clients[0].ok("send_message", message_args("codex", "hello"));
    let inbox = clients[1].call("wait_for_message", json!({ "timeout": 25 })).text;
    assert!(inbox.contains("hello") && inbox.contains("claude"), "{inbox}");
}

#[test]
fn session_continues_after_server_ends() {
    for signal in [Signal::KILL, Signal::TERM] {
        let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
        let mut serve = sandbox.serve();
        let mut client = mcp(&sandbox, &[]).registered("claude");
        // The new server must know the agent that registered with the old one, or it refuses to wait for its mail.
        let waiting = client.start_call("wait_for_message", json!({ "timeout": 25 }));
        client.ok("send_message", message_args("codex", "before"));
        serve.signal(signal);
        serve.wait();
        client.ok("send_message", message_args("codex", "after"));
        sandbox.send("codex", "claude", "are you there?");
        let answer = client.tool_result(waiting);
        assert!(answer.text.contains("are you there?"), "{}", answer.text);
        poll::until("both messages in the mailbox", || {
            let inbox = sandbox.run_as("codex", ["inbox"]).ok();
            (inbox.contains("before") && inbox.contains("after")).then_some(())
        });
        client.process().close_stdin();
        assert!(client.process().wait().success());
    }
}

#[test]
fn killed_server_loses_and_repeats_no_message() {
    const MESSAGES: usize = 200;
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut serve = sandbox.serve();
    let mut client = mcp(&sandbox, &[]).registered("claude");
    let begun: Vec<i64> = (0..MESSAGES)
        .map(|number| client.start_call("send_message", message_args("codex", &format!("number {number}."))))
        .collect();
    // At this moment some calls are answered, some are in flight and some are still in a pipe.
    client.answer(begun[MESSAGES / 4]).unwrap();
    serve.kill();
    for id in begun.into_iter().enumerate().filter(|(place, _)| *place != MESSAGES / 4).map(|(_, id)| id) {
        let answer = client.tool_result(id);
        assert!(!answer.failed, "{}", answer.text);
    }
    // An accepted message may not be delivered yet.
    let inbox = poll::until("all messages in the mailbox", || {
        let inbox = sandbox.run_as("codex", ["inbox", "--limit", "1000"]).ok();
        (inbox.matches("number ").count() >= MESSAGES).then_some(inbox)
    });
    for number in 0..MESSAGES {
        assert_eq!(inbox.matches(&format!("number {number}.")).count(), 1, "{number}");
    }
}

#[test]
fn call_of_unknown_outcome_is_not_retried() {
    let sandbox = with_child(&[]);
    let mut serve = sandbox.serve();
    let mut client = mcp(&sandbox, &[]);
    let call = client.start_call("child_suite", subtool("never"));
    let marker = sandbox.home().join("asked");
    poll::until("the child was asked", || (lines(&marker) == 1).then_some(()));
    serve.kill();
    let answer = client.tool_result(call);
    assert!(answer.failed && answer.text.contains("not known"), "{}", answer.text);
    assert_eq!(client.call("child_suite", subtool("here")).text, "yes");
    assert_eq!(lines(&marker), 1);
}

/// A call that waits for mail ends with its session, although `serve` could still answer it.
#[test]
fn killed_session_consumes_no_later_mail() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let _serve = sandbox.serve();
    let mut client = mcp(&sandbox, &[]).registered("claude");
    for number in 0..8 {
        client.start_call("wait_for_message", json!({ "timeout": 1000 }));
        client.process().kill();
        client = next_session(&sandbox, "claude");
        let text = format!("number {number}.");
        sandbox.send("codex", "claude", &text);
        let answer = client.call("wait_for_message", json!({ "timeout": 60 })).text;
        assert!(answer.contains(&text), "{answer}");
    }
    // Mail that arrives between two sessions waits for the next session; claims persist as well.
    let claimed = client.ok("claim_task", json!({ "task": "T-7" }));
    client.process().kill();
    sandbox.send("codex", "claude", "while you were away");
    client = next_session(&sandbox, "claude");
    let answer = client.call("wait_for_message", json!({ "timeout": 60 })).text;
    assert!(answer.contains("while you were away") && !answer.contains("number"), "{answer}");
    let renewed = json!({ "task": "T-7", "fence": claimed["fence"] });
    assert!(!client.call("renew_claim", renewed).failed);
}

/// Opens the next session of an agent whose last session was killed.
fn next_session(sandbox: &Sandbox, agent: &str) -> Client {
    let mut client = mcp(sandbox, &[]);
    poll::until("the name to be free again", || {
        let answer = client.call("register_chat_agent", json!({ "name": agent }));
        (!answer.failed).then_some(())
    });
    client
}

/// Path of the socket on which `serve` answers sessions.
fn session_socket(sandbox: &Sandbox) -> PathBuf {
    socket::socket_path(&sandbox.path().join(".switchboard"), "mcp.sock")
}

/// Sends `serve` the handshake of a session of this version; returns the answer, or `None` if it hangs up.
fn greet(sandbox: &Sandbox, version: &str) -> Option<Value> {
    let mut stream = UnixStream::connect(session_socket(sandbox)).unwrap();
    let hello =
        json!({ "version": version, "agent": "claude", "profile": "full", "lease_key": "0".repeat(32) });
    stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    (!answer.is_empty()).then(|| serde_json::from_str(&answer).unwrap())
}

/// Another version of the program may have other tools, so `serve` answers only sessions of its own version.
#[test]
fn serve_refuses_session_of_other_version() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let _serve = sandbox.serve();
    for version in ["0.0.1", "99.0.0", ""] {
        assert_eq!(greet(&sandbox, version), None, "{version}");
    }
    assert_eq!(greet(&sandbox, env!("CARGO_PKG_VERSION")), Some(json!({ "attached": true })));
}

/// A session works standalone if the running `serve` has another version.
#[test]
fn session_runs_standalone_without_matching_serve() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let other = UnixListener::bind(session_socket(&sandbox)).unwrap();
    let greeted = std::thread::spawn(move || {
        let (stream, _) = other.accept().unwrap();
        let mut hello = String::new();
        BufReader::new(stream).read_line(&mut hello).unwrap();
        serde_json::from_str::<Value>(&hello).unwrap()
    });
    let mut client = mcp(&sandbox, &[]).registered("claude");
    client.ok("send_message", message_args("codex", "by itself"));
    assert_eq!(greeted.join().unwrap()["version"], env!("CARGO_PKG_VERSION"));
    poll::until("the message in the mailbox", || {
        sandbox.run_as("codex", ["inbox"]).ok().contains("by itself").then_some(())
    });
}

/// Stops `serve` at a moment without an open transaction: no process can write while a stopped one has a transaction
/// open.
fn stop(sandbox: &Sandbox, serve: &Running) {
    poll::until("a moment between two transactions", || {
        serve.signal(Signal::STOP);
        // The signal takes effect a moment later.
        poll::until("the process is stopped", || {
            is_process_stopped(serve.id()).unwrap_or(true).then_some(())
        });
        if !is_write_locked(sandbox) {
            return Some(());
        }
        serve.signal(Signal::CONT);
        None
    });
}

fn is_write_locked(sandbox: &Sandbox) -> bool {
    let db = rusqlite::Connection::open(sandbox.file("hub.db")).unwrap();
    db.busy_timeout(Duration::ZERO).unwrap();
    db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
}

/// Waits until a session has detected that its server does not answer.
fn wait_until_standalone(client: &mut Client) {
    poll::until("the session to continue standalone", || {
        client.process().errors().contains("continues in its own process").then_some(())
    });
}

/// Waits until `serve` answers a new session, which means that it has handled everything it found when it was
/// continued.
fn wait_until_served(sandbox: &Sandbox, agent: &str) -> Client {
    poll::until("serve to answer", || (!sandbox.ok(["doctor"]).contains("switchboard serve")).then_some(()));
    let mut client = mcp(sandbox, &[]).registered(agent);
    client.ok("send_message", message_args("codex", "serve answers"));
    client
}

fn text_of_wait(client: &mut Client) -> String {
    client.call("wait_for_message", json!({ "timeout": 30 })).text
}

#[test]
fn idle_session_detects_stopped_server() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut serve = sandbox.serve();
    let mut client = mcp(&sandbox, &[]).registered("claude");
    stop(&sandbox, &serve);
    let start = Instant::now();
    wait_until_standalone(&mut client);
    // The timeout is 4.5 s; the rest is for a busy machine.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    client.ok("send_message", message_args("codex", "on my own"));
    assert!(sandbox.run_as("codex", ["inbox"]).ok().contains("on my own"));
    // The session retains its name while the server is stopped and afterwards.
    mcp(&sandbox, &["--alone"]).refused("register_chat_agent", json!({ "name": "claude" }));
    serve.signal(Signal::CONT);
    let mut other = wait_until_served(&sandbox, "gemini");
    other.refused("register_chat_agent", json!({ "name": "claude" }));
    mcp(&sandbox, &[]).refused("register_chat_agent", json!({ "name": "claude" }));
    client.ok("send_message", message_args("codex", "still on my own"));
    assert!(serve.terminate().success());
    client.ok("send_message", message_args("codex", "and without it"));
    client.process().close_stdin();
    assert!(client.process().wait().success());
}

#[test]
fn continued_server_consumes_no_session_mail() {
    // A client with a configured agent has no lease on a name: only the closed connection fences the server off.
    for is_configured in [false, true] {
        let sandbox = Sandbox::with_agents(BINARY, &["codex", "claude"]);
        let serve = sandbox.serve();
        let mut client = if is_configured {
            mcp(&sandbox, &["--from", "claude"])
        } else {
            mcp(&sandbox, &[]).registered("claude")
        };
        let waiting = client.start_call("wait_for_message", json!({ "timeout": 600 }));
        client.ok("send_message", message_args("codex", "before"));
        stop(&sandbox, &serve);
        wait_until_standalone(&mut client);
        sandbox.send("codex", "claude", "while you were stopped");
        let answer = client.tool_result(waiting);
        assert!(answer.text.contains("while you were stopped"), "{}", answer.text);
        // The waiting call in the server finds this message when the server is continued; its client would never see
        // it.
        sandbox.send("codex", "claude", "for the one who went on");
        serve.signal(Signal::CONT);
        let mut other = wait_until_served(&sandbox, "gemini");
        let answer = text_of_wait(&mut client);
        assert!(answer.contains("for the one who went on"), "{answer}");
        for number in 0..3 {
            let text = format!("afterwards {number}.");
            sandbox.send("codex", "claude", &text);
            let answer = text_of_wait(&mut client);
            assert!(answer.contains(&text) && !answer.contains("stopped"), "{answer}");
        }
        // Other agents are served as before.
        sandbox.send("codex", "gemini", "and you?");
        assert!(text_of_wait(&mut other).contains("and you?"));
    }
}

#[test]
fn stopped_server_loses_and_repeats_no_message() {
    const MESSAGES: usize = 200;
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut serve = sandbox.serve();
    let mut client = mcp(&sandbox, &[]).registered("claude");
    let begin = |client: &mut Client, number: usize| {
        client.start_call("send_message", message_args("codex", &format!("number {number}.")))
    };
    let mut begun: Vec<i64> = (0..MESSAGES / 2).map(|number| begin(&mut client, number)).collect();
    // At this moment some calls are answered and some are in flight.
    client.answer(begun.remove(0)).unwrap();
    stop(&sandbox, &serve);
    // The server finds these calls when it is continued.
    begun.extend((MESSAGES / 2..MESSAGES).map(|number| begin(&mut client, number)));
    for id in begun {
        let answer = client.tool_result(id);
        assert!(!answer.failed, "{}", answer.text);
    }
    serve.signal(Signal::CONT);
    wait_until_served(&sandbox, "gemini");
    // At its end the server has finished every call that it started.
    assert!(serve.terminate().success());
    let inbox = poll::until("all messages in the mailbox", || {
        let inbox = sandbox.run_as("codex", ["inbox", "--limit", "1000"]).ok();
        (inbox.matches("number ").count() >= MESSAGES).then_some(inbox)
    });
    for number in 0..MESSAGES {
        assert_eq!(inbox.matches(&format!("number {number}.")).count(), 1, "{number}");
    }
}

#[test]
fn continued_server_retries_no_unknown_call() {
    let sandbox = with_child(&[]);
    let marker = sandbox.home().join("asked");
    let mut serve = sandbox.serve();
    let mut client = mcp(&sandbox, &[]);
    let made = client.start_call("child_suite", subtool("never"));
    poll::until("the child was asked", || (lines(&marker) == 1).then_some(()));
    stop(&sandbox, &serve);
    // The server has not read this call: it stays in the socket until the server is continued.
    let unread = client.start_call("child_suite", subtool("never"));
    for call in [made, unread] {
        let answer = client.tool_result(call);
        assert!(answer.failed && answer.text.contains("not known"), "{}", answer.text);
    }
    assert_eq!(client.call("child_suite", subtool("here")).text, "yes");
    serve.signal(Signal::CONT);
    let mut other = mcp(&sandbox, &[]);
    assert_eq!(other.call("child_suite", subtool("here")).text, "yes");
    assert!(serve.terminate().success());
    assert_eq!(lines(&marker), 1);
}

#[test]
fn session_starts_despite_stopped_server() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let serve = sandbox.serve();
    assert!(!sandbox.ok(["doctor"]).contains("switchboard serve"));
    stop(&sandbox, &serve);
    let mut client = mcp(&sandbox, &[]).registered("claude");
    client.ok("send_message", message_args("codex", "hello"));
    let doctor = sandbox.ok(["doctor"]);
    let process = format!("warn  server: `switchboard serve` (process {}) is stopped", serve.id());
    assert!(
        doctor.contains(&process) && doctor.contains(&format!("`kill -CONT {}`", serve.id())),
        "{doctor}"
    );
    serve.signal(Signal::CONT);
    wait_until_served(&sandbox, "gemini");
    client.refused("register_chat_agent", json!({ "name": "gemini" }));
    client.ok("send_message", message_args("codex", "still here"));
}
