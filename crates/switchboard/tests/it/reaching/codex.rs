//! The real Codex: an idle one as a worker, and one with our hooks, both with a local model.

use std::time::Instant;

use serde_json::Value;
use test_support::model::Model;
use test_support::{RunOutput, codex, poll, process, tools};

use super::{SOON, state};
use crate::workspace;

/// Returns the program; prints why and returns `None` if it is not installed.
fn program(test: &str) -> Option<String> {
    match codex::program() {
        Ok(program) => Some(program),
        Err(reason) => {
            tools::skip(test, &reason);
            None
        }
    }
}

#[test]
fn idle_codex_sees_message_within_two_seconds() {
    let Some(program) = program("idle_codex_sees_message_within_two_seconds") else { return };
    let (sandbox, model) = (workspace(), Model::start());
    let home = sandbox.home().join("codex");
    std::fs::create_dir_all(&home).unwrap();
    let _serve = sandbox.serve();
    let env = format!("CODEX_HOME={}", home.display());
    let mut launch = ["worker", "launch", "--agent", "codex", "--name", "deep", "--env", &env, "--"]
        .map(str::to_owned)
        .to_vec();
    launch.push(program);
    launch.extend(model.codex_args());
    sandbox.ok(&launch);
    // The first prompt starts it; from then on it is idle.
    sandbox.send("claude", "deep", "SAY ready");
    sandbox.run_as("claude", ["wait", "--timeout", "60s"]).ok();
    let mut took = Vec::new();
    for number in 0..3 {
        let text = format!("SAY number {number}");
        let sent = Instant::now();
        let id = sandbox.send("claude", "deep", &text);
        let prompt = format!("Message from claude:\n> {text}");
        poll::until("the model to be asked", || model.prompts().contains(&prompt).then_some(()));
        took.push(sent.elapsed());
        let answer = sandbox.run_as("claude", ["wait", "--timeout", "60s"]).ok();
        assert!(answer.contains(&format!("number {number}")), "{answer}");
        assert_eq!(state(&sandbox, &id), "seen");
    }
    println!("{took:?}");
    assert!(took.iter().any(|time| *time < SOON), "{took:?}");
}

#[test]
fn real_codex_sees_mail_by_installed_hooks() {
    let Some(program) = program("real_codex_sees_mail_by_installed_hooks") else {
        return;
    };
    let (sandbox, model) = (workspace(), Model::start());
    sandbox.ok(["install", "codex"]);
    let home = sandbox.home().join("codex");
    codex::prepare_home(&home, sandbox.path());
    let first = sandbox.send("claude", "codex", "the first letter");
    let mut command = process::command(&program);
    command.current_dir(sandbox.path()).env("HOME", sandbox.home()).env("CODEX_HOME", &home);
    command.args(["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]);
    let ran = RunOutput::of(command.args(model.codex_args()).arg("SAY hello"));
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(state(&sandbox, &first), "seen");
    let requests = model.requests().iter().map(Value::to_string).collect::<String>();
    assert!(requests.contains("the first letter") && requests.contains(&first), "{requests}");
}
