//! When the waiter of an idle Claude Code session ends.

use test_support::process::command;
use test_support::{Running, Sandbox, poll};

use super::{hook_input, state};
use crate::workspace;

/// Starts the waiter with these variables of the client; its input stays open.
fn wait_with(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Running {
    let mut command = sandbox.command(["hook", "claude", "idle"]);
    Running::start_with_stdin(command.envs(variables.iter().copied()))
}

/// Writes a client's input to the waiter, and closes its stdin.
fn write_input(sandbox: &Sandbox, waiter: &mut Running) {
    waiter.write_line(&hook_input(sandbox, "Stop").to_string()).unwrap();
    waiter.close_stdin();
}

#[test]
fn waiter_ends_at_once_in_print_mode() {
    let sandbox = workspace();
    let print_modes: [&[(&str, &str)]; 4] = [
        &[("CLAUDE_CODE_ENTRYPOINT", "sdk-cli"), ("CLAUDE_CODE_SESSION_ATTENDED", "0")],
        &[("CLAUDE_CODE_ENTRYPOINT", "sdk-ts")],
        &[("CLAUDE_CODE_ENTRYPOINT", "cli"), ("CLAUDE_CODE_SESSION_ATTENDED", "0")],
        &[("CLAUDE_CODE_SESSION_ATTENDED", "0")],
    ];
    for variables in print_modes {
        let mut waiter = wait_with(&sandbox, variables);
        assert_eq!(waiter.wait().code(), Some(0), "{variables:?}: {}", waiter.errors());
    }
    let agents = sandbox.ok(["agents"]);
    assert!(!agents.contains("idle"), "{agents}");
}

#[test]
fn waiter_ends_with_its_client() {
    let sandbox = workspace();
    let mut client = Running::start_with_stdin(&mut command("cat"));
    let pid = client.id().to_string();
    let variables = [("CLAUDE_CODE_ENTRYPOINT", "cli"), ("CLAUDE_PID", pid.as_str())];
    let mut waiter = wait_with(&sandbox, &variables);
    write_input(&sandbox, &mut waiter);
    poll::until("it to wait", || sandbox.ok(["agents"]).contains("idle").then_some(()));
    client.kill();
    assert_eq!(waiter.wait().code(), Some(0), "{}", waiter.errors());
    let mut late = wait_with(&sandbox, &variables);
    write_input(&sandbox, &mut late);
    assert_eq!(late.wait().code(), Some(0), "{}", late.errors());
    let id = sandbox.send("codex", "claude", "nobody is there");
    assert_eq!(state(&sandbox, &id), "delivered");
}

#[test]
fn waiter_wakes_attended_client() {
    let sandbox = workspace();
    let client = Running::start_with_stdin(&mut command("cat"));
    let pid = client.id().to_string();
    let variables = [
        ("CLAUDE_CODE_ENTRYPOINT", "cli"),
        ("CLAUDE_CODE_SESSION_ATTENDED", "1"),
        ("CLAUDE_PID", pid.as_str()),
    ];
    let mut waiter = wait_with(&sandbox, &variables);
    write_input(&sandbox, &mut waiter);
    poll::until("it to wait", || sandbox.ok(["agents"]).contains("idle").then_some(()));
    let id = sandbox.send("codex", "claude", "wake up");
    assert_eq!(waiter.wait().code(), Some(2), "{}", waiter.errors());
    assert_eq!(state(&sandbox, &id), "seen");
}
