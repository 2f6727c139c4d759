//! Who counts as a person: processes of agents make no decision of the person and retain their own names.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{RunOutput, Running, Sandbox, TestServer, files, poll};

use crate::terminal::person::Person;
use crate::{BINARY, workspace};

/// Verbs by which a person decides, with the consent flag of scripts.
const DECISIONS: [&[&str]; 13] = [
    &["resume", "--all", "--yes"],
    &["resume", "codex", "--yes"],
    &["worker", "approve", "a1", "--yes"],
    &["worker", "approve", "a1", "decline", "--yes"],
    &["suite", "trust", "notes", "--yes"],
    &["suite", "trust", "--all", "--yes"],
    &["suite", "trust", "--revoke", "notes"],
    &["suite", "add", "more", "--", "true"],
    &["suite", "pins", "approve", "--yes"],
    &["swarm", "approve", "bob", "--yes"],
    &["swarm", "kick", "bob", "--yes"],
    &["swarm", "transfer", "bob", "--yes"],
    &["send", "codex", "hello", "--from", "human"],
];

/// Creates a workspace with an untrusted server.
fn with_server() -> Sandbox {
    let sandbox = workspace();
    let folder = sandbox.file("mcps/notes");
    std::fs::create_dir_all(&folder).unwrap();
    files::put(folder.join(".mcp.json"), r#"{ "name": "notes", "command": { "cmd": "true" } }"#);
    sandbox
}

fn is_refused(ran: &RunOutput) {
    let says_why = ran.stderr.contains("only a person may") && ran.stderr.contains("hint: ");
    assert!(ran.code == Some(4) && says_why, "{ran:?}");
}

/// Runs a program as `switchboard run --name NAME` does; returns its output.
fn run_as(sandbox: &Sandbox, name: &str, script: &str) -> String {
    let mut command = sandbox.command(["run", "--name", name, "--", "sh", "-c", script]);
    let ran = RunOutput::of(command.env("SWITCHBOARD", BINARY).env("ROOT", sandbox.path()));
    ran.stdout.replace("\r\n", "\n")
}

#[test]
fn agent_environment_grants_no_decision() {
    let sandbox = with_server();
    for args in DECISIONS {
        is_refused(&RunOutput::of(sandbox.command(args).env("SWITCHBOARD_AGENT_NAME", "codex")));
    }
    let marks =
        ["SWITCHBOARD_LAUNCHER", "CLAUDECODE", "CLAUDE_PID", "CODEX_THREAD_ID", "GEMINI_CLI", "AI_AGENT"];
    for mark in marks {
        is_refused(&RunOutput::of(sandbox.command(["resume", "--all", "--yes"]).env(mark, "1")));
        is_refused(&RunOutput::of(sandbox.command(["send", "codex", "x", "--from", "Human"]).env(mark, "1")));
        let ran = RunOutput::of(sandbox.command(["send", "codex", "x"]).env(mark, "1"));
        assert!(ran.code == Some(4) && ran.stderr.contains("--from NAME"), "{mark}: {ran:?}");
        RunOutput::of(sandbox.command(["inbox", "codex"]).env(mark, "1")).ok();
    }
    RunOutput::of(sandbox.command(["send", "codex", "mine", "--from", "claude"]).env("CLAUDECODE", "1")).ok();
    let mail = sandbox.json(["inbox", "codex"]);
    assert_eq!(mail.len(), 1, "{mail:?}");
    assert_eq!((&mail[0]["body"], &mail[0]["from"]), (&json!("mine"), &json!("claude")));
}

#[test]
fn cleared_environment_is_detected_by_ancestors() {
    let sandbox = with_server();
    let script = r#"for verb in "resume --all --yes" "suite trust notes --yes" "send codex x" "send codex x --from human"; do
        env -i HOME="$HOME" "$SWITCHBOARD" --workspace "$ROOT" $verb; echo "code $?"; done"#;
    let output = run_as(&sandbox, "claude", script);
    assert_eq!(output.matches("code 4").count(), 3, "{output}");
    // Its launcher still names it.
    assert_eq!(output.matches("code 0").count(), 1, "{output}");
    let mail = sandbox.json(["inbox", "codex"]);
    assert_eq!((mail.len(), &mail[0]["from"]), (1, &json!("claude")), "{mail:?}");
    let mut cleared = sandbox.command(["run", "--name", "claude", "--"]);
    let program =
        ["env", "-i", BINARY, "--workspace", sandbox.path().to_str().unwrap(), "resume", "--all", "--yes"];
    assert_eq!(RunOutput::of(cleared.args(program)).code, Some(4));
}

#[test]
fn detached_process_retains_its_mark() {
    let sandbox = workspace();
    let out = sandbox.path().join("out");
    let script = format!(
        "setsid -f sh -c '\"$SWITCHBOARD\" resume --all --yes; echo code $? > {0}.new; mv {0}.new {0}'; cat",
        out.display()
    );
    let mut command = sandbox.command(["run", "--name", "claude", "--", "sh", "-c", &script]);
    let _running = Running::start_with_stdin(command.env("SWITCHBOARD", BINARY));
    let code = poll::until("the detached process", || std::fs::read_to_string(&out).ok());
    assert_eq!(code, "code 4\n");
}

/// A client that holds an MCP session and runs commands, without any Switchboard variable.
const CLIENT: &str = r#"
mkfifo in out
env $NAME "$SWITCHBOARD" mcp < in > out 2> /dev/null &
exec 3> in 4< out
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}' >&3
read answer <&4
for verb in "resume --all --yes" "send codex hello --from human" "send codex hello"; do
    env -i HOME="$HOME" "$SWITCHBOARD" --workspace "$PWD" $verb; echo "code $?"
done
exec 3>&-
wait
"#;

#[test]
fn session_holder_child_counts_as_agent() {
    for (name, codes, from) in
        [("X=1", ["4", "4", "4"], None), ("SWITCHBOARD_AGENT_NAME=claude", ["4", "4", "0"], Some("claude"))]
    {
        let sandbox = workspace();
        let mut command = test_support::process::command("sh");
        command
            .current_dir(sandbox.path())
            .env("HOME", sandbox.home())
            .env("SWITCHBOARD", BINARY)
            .env("NAME", name);
        let ran = RunOutput::of(command.args(["-c", CLIENT]));
        let printed: Vec<&str> = ran.stdout.lines().filter_map(|line| line.strip_prefix("code ")).collect();
        assert_eq!(printed, codes, "{ran:?}");
        let mail = sandbox.json(["inbox", "codex"]);
        let senders: Vec<_> = mail.iter().filter_map(|message| message["from"].as_str()).collect();
        assert_eq!(senders, from.into_iter().collect::<Vec<_>>(), "{ran:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn connected_client_child_counts_as_agent() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let decides = || sandbox.run(["resume", "codex", "--yes"]);
    let nothing_is_stopped = 5;
    assert_eq!(decides().code, Some(nothing_is_stopped), "no session is open: {:?}", decides());
    // This process is the client.
    let client = Client::streamable(&served, None).registered("alice");
    is_refused(&decides());
    is_refused(&sandbox.run(["--from", "human", "send", "codex", "hello"]));
    drop(client);
    assert_eq!(decides().code, Some(nothing_is_stopped), "the session has ended: {:?}", decides());
}

#[test]
fn person_is_prompted_on_terminal() {
    let sandbox = with_server();
    for (answer, code) in [("\r", 4), ("n\r", 4), ("y\r", 0)] {
        let mut person = Person::sit_down(&sandbox, &["suite", "trust", "notes"]);
        person.until_shown("Trust notes? [y/N] ");
        person.types(answer);
        assert_eq!(person.end().code(), Some(code), "{}", person.shown());
    }
    let shown = sandbox.json(["suite", "list"]);
    assert_eq!(shown[0]["state"], "trusted", "{shown:?}");
    let mut person = Person::sit_down(&sandbox, &["resume", "--all", "--yes"]);
    assert_eq!(person.end().code(), Some(5), "nothing is stopped: {}", person.shown());
}

#[test]
fn consent_is_needed_off_terminal() {
    let sandbox = with_server();
    for args in [
        &["resume", "--all"][..],
        &["suite", "trust", "notes"],
        &["suite", "pins", "approve"],
        &["swarm", "kick", "x"],
    ] {
        let ran = sandbox.run(args);
        assert!(ran.code == Some(4) && ran.stderr.contains("hint: agree with --yes"), "{ran:?}");
    }
    sandbox.ok(["suite", "trust", "notes", "--yes"]);
}

#[test]
fn import_by_agent_trusts_nothing() {
    let sandbox = crate::bare();
    files::put(sandbox.path().join(".mcp.json"), r#"{ "mcpServers": { "notes": { "command": "true" } } }"#);
    RunOutput::of(sandbox.command(["init", "--yes"]).env("CLAUDECODE", "1")).ok();
    let listed = sandbox.json(["suite", "list"]);
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&json!("notes"), &json!("new")), "{listed:?}");
}

#[test]
fn launcher_names_agent_over_environment() {
    let sandbox = workspace();
    sandbox.run_as("codex", ["agents", "register", "reviewer"]).ok();
    sandbox.send("codex", "claude", "for claude");
    sandbox.send("codex", "reviewer", "for the reviewer");
    let script = r#"export SWITCHBOARD_AGENT_NAME=claude
        echo '{"hook_event_name":"SessionStart","session_id":"s","cwd":"'"$ROOT"'"}' | "$SWITCHBOARD" hook claude session-start --agent claude
        "$SWITCHBOARD" send codex 'who am I'
        env -i HOME="$HOME" "$SWITCHBOARD" --workspace "$ROOT" send codex 'and now'"#;
    let output = run_as(&sandbox, "reviewer", script);
    assert!(output.contains("for the reviewer") && !output.contains("for claude"), "{output}");
    let mail = sandbox.json(["inbox", "codex"]);
    let senders: Vec<_> = mail.iter().map(|message| message["from"].as_str().unwrap()).collect();
    assert_eq!(senders, ["reviewer", "reviewer"], "{mail:?}");
}

#[test]
fn session_retains_launcher_name() {
    let sandbox = workspace();
    let calls = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "send_message", "arguments": { "recipient": "codex", "action": "delegate_task", "payload": "by a tool" } } }),
    ];
    let lines: Vec<String> = calls.iter().map(ToString::to_string).collect();
    files::put(sandbox.path().join("calls"), lines.join("\n") + "\n");
    // As a client starts the server of its settings: with the name that `install` wrote, and without our variables.
    let script = r#"mkfifo out; (cat calls; read go < out2) | env -i HOME="$HOME" SWITCHBOARD_AGENT_NAME=claude "$SWITCHBOARD" --workspace "$ROOT" mcp > out & 
        exec 4< out; read a <&4; read b <&4; echo "$b"; echo > out2; wait"#;
    let script = format!("mkfifo out2; {script}");
    let output = run_as(&sandbox, "reviewer", &script);
    let mail = sandbox.json(["inbox", "codex"]);
    assert_eq!((mail.len(), &mail[0]["from"]), (1, &json!("reviewer")), "{output}");
}

#[test]
fn hook_in_worker_is_silent() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let script = r#"cat > /dev/null; for agent in "" "--agent claude"; do
        echo '{"hook_event_name":"SessionStart","session_id":"s","cwd":"'"$SWITCHBOARD_WORKSPACE_ROOT"'"}' | "$SWITCHBOARD" hook claude session-start $agent
        done; echo "[$SWITCHBOARD_AGENT_NAME]""#;
    let binary = format!("SWITCHBOARD={BINARY}");
    let launch = ["--json", "worker", "launch", "--agent", "command", "--name", "cw", "--env", &binary];
    let launched = sandbox.ok(launch.into_iter().chain(["--", "sh", "-c", script]));
    let job: Value = serde_json::from_str(&launched).unwrap();
    let id = sandbox.send("codex", "claude", "for claude alone");
    let node = format!("{}/0", job["job_id"].as_str().unwrap());
    let output = sandbox.ok(["worker", "inject", &node, "go", "--wait"]);
    assert!(output.lines().last() == Some("[cw]") && !output.contains("for claude alone"), "{output}");
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "delivered");
}

#[test]
fn two_workspaces_require_explicit_choice() {
    let (one, two) = (workspace(), workspace());
    let root = one.path().to_str().unwrap();
    for args in [&["send", "codex", "x", "--from", "claude"][..], &["mcp"], &["inbox", "codex"]] {
        let ran = RunOutput::of(two.command(args).env("SWITCHBOARD_WORKSPACE_ROOT", root));
        let names_both = ran.stderr.contains(root) && ran.stderr.contains(two.path().to_str().unwrap());
        assert!(ran.code == Some(2) && names_both, "{ran:?}");
    }
    let input =
        json!({ "hook_event_name": "SessionStart", "session_id": "s", "cwd": two.path() }).to_string();
    let mut hook = two.command(["hook", "codex", "session-start", "--agent", "codex"]);
    hook.current_dir(one.path()).env("SWITCHBOARD_WORKSPACE_ROOT", root);
    let ran = RunOutput::with_input(&mut hook, input.as_bytes());
    assert!(ran.code == Some(1) && ran.stderr.contains("SWITCHBOARD_WORKSPACE_ROOT"), "{ran:?}");

    let explicit = ["send", "codex", "x", "--from", "claude", "--workspace", root];
    RunOutput::of(two.command(explicit).env("SWITCHBOARD_WORKSPACE_ROOT", two.path())).ok();
    let link = two.home().join("link");
    std::os::unix::fs::symlink(two.path(), &link).unwrap();
    RunOutput::of(two.command(["inbox", "codex"]).env("SWITCHBOARD_WORKSPACE_ROOT", &link)).ok();
    RunOutput::of(
        two.command(["inbox", "codex"]).current_dir(two.home()).env("SWITCHBOARD_WORKSPACE_ROOT", &link),
    )
    .ok();
}

#[test]
fn foreign_environment_names_no_session() {
    let sandbox = workspace();
    let mut command = sandbox.command([
        "run",
        "--name",
        "alpha",
        "--",
        "sh",
        "-c",
        "echo \"[$SWITCHBOARD_LAUNCHER]\"; cat",
    ]);
    let first = Running::start_with_stdin(&mut command);
    let line = poll::until("the mark", || first.line_within(poll::TIMEOUT).filter(|line| line.contains('[')));
    let mark = line.trim().trim_matches(['[', ']']).to_owned();
    let input =
        json!({ "hook_event_name": "SessionStart", "session_id": "s", "cwd": sandbox.path() }).to_string();
    for args in [&["mcp"][..], &["hook", "codex", "session-start", "--agent", "codex"]] {
        let mut daemon = sandbox.command(args);
        daemon.env("SWITCHBOARD_AGENT_NAME", "alpha").env("SWITCHBOARD_LAUNCHER", &mark);
        let ran = RunOutput::with_input(&mut daemon, input.as_bytes());
        let names_both = ran.stderr.contains("'alpha'") && ran.stderr.contains("daemon_auto_start");
        assert!(ran.code == Some(4) && names_both, "{ran:?}");
    }
}

#[test]
fn codex_shares_no_daemon() {
    let sandbox = workspace();
    let codex = sandbox.path().join("codex");
    files::put(&codex, "#!/bin/sh\necho \"given: $*\"\n");
    std::fs::set_permissions(&codex, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = sandbox.run(["run", "--name", "codex", "--", codex.to_str().unwrap(), "resume", "--last"]);
    assert!(ran.stdout.contains("given: -c features.daemon_auto_start=false resume --last"), "{ran:?}");
}

#[test]
fn tools_offer_no_decision_of_persons() {
    let sandbox = workspace();
    let mut client = crate::mcp::stdio(&sandbox, Some("claude"));
    let listed = client.request("tools/list", json!({})).unwrap();
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"send_message"), "{names:?}");
    for word in ["approve", "deny", "trust", "pin", "resume", "kick", "transfer", "dissolve"] {
        assert!(!names.iter().any(|name| name.contains(word)), "{word}: {names:?}");
    }
}
