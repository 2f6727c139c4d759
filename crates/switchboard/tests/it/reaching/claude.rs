//! The real Claude Code with the hooks and the server that `install` writes.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use test_support::model::Model;
use test_support::process::command;
use test_support::{RunOutput, Sandbox, claude, poll, tools};

use super::state;
use crate::terminal::person::Person;
use crate::{BINARY, workspace};

/// Returns a workspace with our settings for Claude Code, and the program; `None` if it is not installed.
fn installed(test: &str) -> Option<(Sandbox, PathBuf)> {
    let program = match claude::program() {
        Ok(program) => program,
        Err(reason) => {
            tools::skip(test, &reason);
            return None;
        }
    };
    let sandbox = workspace();
    sandbox.ok(["install", "claude"]);
    claude::prepare_home(sandbox.home(), sandbox.path());
    Some((sandbox, program))
}

/// Returns arguments with which it prints an answer and may run these tools.
fn print_args(prompt: &str) -> [&str; 5] {
    ["-p", "--allowedTools", "Bash,mcp__switchboard__send_message", "--", prompt]
}

#[test]
fn real_claude_in_print_mode_ends() {
    let Some((sandbox, program)) = installed("real_claude_in_print_mode_ends") else { return };
    let model = Model::start();
    let id = sandbox.send("codex", "claude", "the first letter");
    let mut claude = command(&program);
    claude.current_dir(sandbox.path()).envs(claude::environment(&model, sandbox.home()));
    let ran = RunOutput::of(claude.args(print_args("SAY hello there")));
    assert_eq!(ran.ok(), "hello there");
    assert_eq!(state(&sandbox, &id), "seen");
    // None of our hooks delays its end, with any entry point and output format.
    for (entrypoint, attended) in [("sdk-cli", "0"), ("sdk-ts", "1"), ("sdk-py", "false")] {
        let id = sandbox.send("codex", "claude", "another letter");
        let mut claude = command(&program);
        claude.current_dir(sandbox.path()).envs(claude::environment(&model, sandbox.home()));
        claude.env("CLAUDE_CODE_ENTRYPOINT", entrypoint).env("CLAUDE_CODE_SESSION_ATTENDED", attended);
        claude.args(["--output-format", "stream-json", "--verbose"]);
        let printed = RunOutput::of(claude.args(print_args("SAY hello again"))).ok();
        assert!(printed.contains(r#""result":"hello again""#), "{entrypoint}: {printed}");
        assert_eq!(state(&sandbox, &id), "seen", "{entrypoint}");
    }
}

#[test]
fn real_claude_retains_launcher_name() {
    let Some((sandbox, program)) = installed("real_claude_retains_launcher_name") else { return };
    let model = Model::start();
    sandbox.ok(["agents", "register", "reviewer"]);
    let (mine, other) = (
        sandbox.send("codex", "reviewer", "for the reviewer"),
        sandbox.send("codex", "claude", "for claude"),
    );
    let prompt = format!(
        "RUN {BINARY} send codex shell\nRUN env -i HOME=$HOME {BINARY} --workspace {} resume --all --yes; echo code $? > code\n\
         CALL mcp__switchboard__send_message {{\"recipient\":\"codex\",\"action\":\"delegate_task\",\"payload\":\"tool\"}}\nSAY done",
        sandbox.path().display()
    );
    let mut run = sandbox.command(["run", "--name", "reviewer", "--"]);
    run.arg(&program).args(print_args(&prompt)).envs(claude::environment(&model, sandbox.home()));
    let ran = RunOutput::of(&mut run);
    assert!(ran.stdout.contains("done"), "{ran:?}");
    assert_eq!((state(&sandbox, &mine).as_str(), state(&sandbox, &other).as_str()), ("seen", "delivered"));
    assert_eq!(std::fs::read_to_string(sandbox.path().join("code")).unwrap(), "code 4\n");
    let mail = sandbox.json(["inbox", "codex"]);
    let got: Vec<_> =
        mail.iter().map(|one| (one["from"].as_str().unwrap(), one["body"].as_str().unwrap())).collect();
    assert_eq!(got, [("reviewer", "shell"), ("reviewer", "tool")]);
}

/// Returns the processes that have this variable, written `NAME=value`.
fn with_variable(variable: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    pids.filter(has_it).collect()
}

/// Returns the program of a `switchboard run`, below its reapers.
fn program_below(run: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap();
    let child = children.split(' ').next().unwrap().parse().unwrap();
    let is_ours = std::fs::read_link(format!("/proc/{child}/exe")).unwrap() == std::path::Path::new(BINARY);
    if is_ours { program_below(child) } else { child }
}

#[test]
fn real_idle_claude_wakes_once() {
    let test = "real_idle_claude_wakes_once";
    if !cfg!(target_os = "linux") {
        return tools::skip(test, "processes are looked for in /proc");
    }
    let Some((sandbox, program)) = installed(test) else { return };
    let model = Model::start();
    let mut args: Vec<String> = ["run", "--name", "claude", "--", "env"].map(str::to_owned).to_vec();
    args.extend(
        claude::environment(&model, sandbox.home())
            .into_iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    args.push(program.display().to_string());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let person = Person::sit_down(&sandbox, &args);
    let is_idle =
        || sandbox.ok(["agents"]).lines().any(|line| line.contains("claude") && line.contains("idle"));
    poll::until("an idle session", || is_idle().then_some(()));
    for word in ["XYZZY", "PLUGH"] {
        let id = sandbox.send("codex", "claude", &format!("SAY {word}"));
        poll::until("the session to wake", || (state(&sandbox, &id) == "seen").then_some(()));
        person.until_shown(word);
        poll::until("the end of the turn", || is_idle().then_some(()));
    }
    for word in ["XYZZY", "PLUGH"] {
        let prompts = model.prompts().iter().filter(|prompt| prompt.contains(word)).count();
        assert_eq!(prompts, 1, "{:?}", model.prompts());
    }
    let client = program_below(person.id());
    let variable = format!("CLAUDE_PID={client}");
    poll::until("the waiter", || (!with_variable(&variable).is_empty()).then_some(()));
    kill_process(Pid::from_raw(i32::try_from(client).unwrap()).unwrap(), Signal::KILL).unwrap();
    poll::until("its end", || with_variable(&variable).is_empty().then_some(()));
}
