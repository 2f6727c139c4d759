//! The real Claude Code with our hooks, idle at a terminal, with a local model.

use test_support::model::Model;
use test_support::{claude, poll, process, tools};

use super::state;
use crate::terminal::person::Person;
use crate::workspace;

#[test]
fn idle_claude_session_wakes_once() {
    let program = match claude::program() {
        Ok(program) => program,
        Err(reason) => return tools::skip("idle_claude_session_wakes_once", &reason),
    };
    let (sandbox, model) = (workspace(), Model::start());
    sandbox.ok(["install", "claude"]);
    claude::prepare_home(sandbox.home(), sandbox.path());
    let mut command = process::command(program);
    command.current_dir(sandbox.path()).envs(claude::environment(&model, sandbox.home()));
    let person = Person::start(&command);
    let texts: Vec<String> = (0..2).map(|number| format!("letter number {number} for you")).collect();
    for text in &texts {
        // The waiter of the session runs, after the start and after each turn.
        poll::within(poll::TIMEOUT, || sandbox.ok(["agents"]).contains("idle").then_some(()))
            .unwrap_or_else(|| panic!("never idle; shown was {:?}", person.shown()));
        let requests = model.requests().len();
        let id = sandbox.send("codex", "claude", text);
        let is_asked =
            || model.requests()[requests..].iter().any(|request| request.to_string().contains(text));
        poll::within(poll::TIMEOUT, || is_asked().then_some(()))
            .unwrap_or_else(|| panic!("the model was not asked; shown was {:?}", person.shown()));
        assert_eq!(state(&sandbox, &id), "seen");
    }
    let whole = model.requests().last().unwrap().to_string();
    for text in &texts {
        assert_eq!(whole.matches(text.as_str()).count(), 1, "{text} in {whole}");
    }
}
