//! Mail for a real Claude Code that asks for a permission.

use test_support::model::Model;
use test_support::{claude, poll, tools};

use super::person::Person;
use super::{result, waits};
use crate::workspace;

#[test]
fn real_claude_permission_dialog_gets_no_key() {
    let test = "real_claude_permission_dialog_gets_no_key";
    let program = match claude::program() {
        Ok(program) => program.display().to_string(),
        Err(reason) => return tools::skip(test, &reason),
    };
    let sandbox = workspace();
    claude::prepare_home(sandbox.home(), sandbox.path());
    let model = Model::start();
    let mut args: Vec<String> = ["run", "--name", "claude", "--", "env"].map(str::to_owned).to_vec();
    let environment = claude::environment(&model, sandbox.home()).into_iter();
    args.extend(environment.map(|(name, value)| format!("{name}={value}")));
    args.extend([program, "--permission-mode".to_owned(), "default".to_owned()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let person = Person::sit_down(&sandbox, &args);
    let execute = |text: &str| sandbox.run_as("codex", ["send", "claude", text, "--kind", "execute"]).ok();
    poll::until("the terminal to be registered", || super::pid_of(&sandbox, "claude"));
    let danger = sandbox.path().join("danger.txt");
    // Sent during the start: it is typed once there is an input field.
    let first = execute("RUN touch danger.txt");
    result(&sandbox, "codex", &first, "executed");
    person.until_shown("proceed?");
    let second = execute("SAY PLUGH");
    assert_eq!(waits(&sandbox, &second), "the program shows a question");
    assert!(!danger.exists());
    // The person denies.
    person.types("\x1b");
    result(&sandbox, "codex", &second, "executed");
    let is_asked = || model.prompts().iter().any(|prompt| prompt.contains("PLUGH")).then_some(());
    poll::until("the second prompt", is_asked);
    assert!(!danger.exists());
}
