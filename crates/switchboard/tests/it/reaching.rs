//! Mail reaches the model: by the hooks of each client, in a worker, and the person by a program of theirs.

mod claude;
mod claude_wake;
mod codex;
mod hooks;
mod idle;
mod install;
mod killed;
mod notify;
mod once;

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use test_support::{RunOutput, Running, Sandbox};

/// Within which a message has to be before a model: two seconds, where the machine has nothing else to do. Beside other
/// tests it has to be clearly before the 15 s after which a mailbox is looked at without a reason, in the best of a few tries.
const SOON: Duration = Duration::from_secs(10);

/// What a client says on a hook's stdin.
fn said(sandbox: &Sandbox, event: &str) -> Value {
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

/// Starts the one that waits beside an idle session.
fn wait_beside(sandbox: &Sandbox, session: &str) -> Running {
    let mut input = said(sandbox, "Stop");
    input["session_id"] = session.into();
    let mut command = sandbox.command(["hook", "claude", "idle"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start_with_stdin(&mut command);
    running.write_line(&input.to_string()).unwrap();
    running.close_stdin();
    running
}

/// The state of a message's only delivery.
fn state(sandbox: &Sandbox, id: &str) -> String {
    let receipt = &sandbox.json(["receipt", id])[0];
    receipt["deliveries"][0]["state"].as_str().unwrap().to_owned()
}
