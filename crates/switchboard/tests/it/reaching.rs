//! Mail reaches the model: by the hooks of each client, in a worker, and the person by a notify program.

mod claude;
mod claude_wake;
mod codex;
mod exactly_once;
mod hooks;
mod idle;
mod install;
mod interrupted_install;
mod notify;

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use test_support::{RunOutput, Running, Sandbox};

/// Time within which a message must reach a model: two seconds on an idle machine. Next to other tests it must be
/// clearly below the 15 s of the periodic poll of a mailbox, in the best of a few tries.
const SOON: Duration = Duration::from_secs(10);

/// Returns the input that a client writes to a hook's stdin.
fn hook_input(sandbox: &Sandbox, event: &str) -> Value {
    json!({
        "session_id": "11111111-1111-7111-8111-111111111111",
        "transcript_path": sandbox.home().join("transcript.jsonl"),
        "cwd": sandbox.path(),
        "permission_mode": "default",
        "hook_event_name": event,
    })
}

/// Calls a hook as a client does: in another folder, with JSON on stdin.
fn call(sandbox: &Sandbox, args: &[&str], input: &Value) -> RunOutput {
    let mut command = sandbox.command([&["hook"], args].concat());
    command.current_dir(sandbox.home());
    RunOutput::with_input(&mut command, input.to_string().as_bytes())
}

/// Starts the waiter of an idle session.
fn start_waiter(sandbox: &Sandbox, session: &str) -> Running {
    let mut input = hook_input(sandbox, "Stop");
    input["session_id"] = session.into();
    let mut command = sandbox.command(["hook", "claude", "idle"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start_with_stdin(&mut command);
    running.write_line(&input.to_string()).unwrap();
    running.close_stdin();
    running
}

/// Returns the state of a message's only delivery.
fn state(sandbox: &Sandbox, id: &str) -> String {
    let receipt = &sandbox.json(["receipt", id])[0];
    receipt["deliveries"][0]["state"].as_str().unwrap().to_owned()
}
