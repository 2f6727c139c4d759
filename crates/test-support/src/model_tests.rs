use std::process::Command;

use super::Model;
use crate::process::command;
use crate::{claude, gemini, tools};

/// Runs Claude Code in print mode with a prompt and returns what it prints.
fn print_with_claude(program: &std::path::Path, model: &Model, prompt: &str) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    let (home, project) = (folder.path().join("home"), folder.path().join("project"));
    std::fs::create_dir_all(&project).unwrap();
    claude::prepare_home(&home, &project);
    let mut command: Command = command(program);
    command.current_dir(&project).envs(claude::environment(model, &home));
    tools::run(command.args(["-p", "--allowedTools", "Bash", "--", prompt])).unwrap()
}

#[test]
fn claude_prints_scripted_answers() {
    let program = match claude::program() {
        Ok(program) => program,
        Err(reason) => return tools::skip("claude_prints_scripted_answers", &reason),
    };
    let model = Model::start();
    assert_eq!(print_with_claude(&program, &model, "> SAY hello there").trim(), "hello there");
    assert_eq!(print_with_claude(&program, &model, "RUN echo made by a tool\nSAY two").trim(), "two");
    let result = model.requests().last().unwrap().to_string();
    assert!(result.contains("tool_result") && result.contains("made by a tool"), "{result}");
    assert_eq!(model.prompts().last().unwrap(), "RUN echo made by a tool\nSAY two");
}

#[test]
fn gemini_prints_scripted_answer() {
    let [node, script] = match gemini::program() {
        Ok(program) => program,
        Err(reason) => return tools::skip("gemini_prints_scripted_answer", &reason),
    };
    let (model, folder) = (Model::start(), tempfile::TempDir::new().unwrap());
    gemini::prepare_home(folder.path());
    let mut command = command(node);
    command.arg(script).args(["--skip-trust", "-p", "SAY hello there"]);
    command.current_dir(folder.path()).envs(gemini::environment(&model, folder.path()));
    let printed = tools::run(&mut command).unwrap();
    assert_eq!(printed.trim(), "hello there");
}
