//! Mail for a real Gemini CLI: its permission dialog, and texts that it would complete.

use test_support::model::Model;
use test_support::{Sandbox, gemini, poll, tools};

use super::person::Person;
use super::{pid_of, result, waits};
use crate::workspace;

/// Starts the Gemini CLI in a terminal without true colour; prints why and returns `None` if it is not installed.
fn start(test: &str, sandbox: &Sandbox, model: &Model) -> Option<Person> {
    let [node, script] = match gemini::program() {
        Ok(program) => program.map(|path| path.display().to_string()),
        Err(reason) => {
            tools::skip(test, &reason);
            return None;
        }
    };
    gemini::prepare_home(sandbox.home());
    let environment =
        gemini::environment(model, sandbox.home()).map(|(name, value)| format!("{name}={value}"));
    // It draws nothing where `CI` is set.
    let mut args = vec!["run", "--name", "gemini", "--", "env", "-u", "CI"];
    args.extend(environment.iter().map(String::as_str));
    args.extend([&node, &script, "--skip-trust"].map(|word| word as &str));
    let person = Person::sit_down(sandbox, &args);
    poll::until("the terminal to be registered", || pid_of(sandbox, "gemini"));
    Some(person)
}

fn execute(sandbox: &Sandbox, text: &str) -> String {
    sandbox.run_as("codex", ["send", "gemini", text, "--kind", "execute"]).ok()
}

#[test]
fn real_gemini_permission_dialog_gets_no_key() {
    let (sandbox, model) = (workspace(), Model::start());
    let test = "real_gemini_permission_dialog_gets_no_key";
    let Some(person) = start(test, &sandbox, &model) else { return };
    let danger = sandbox.path().join("danger.txt");
    let first = execute(&sandbox, "RUN touch danger.txt");
    result(&sandbox, "codex", &first, "executed");
    person.until_shown("Allow once");
    let second = execute(&sandbox, "SAY PLUGH");
    assert_eq!(waits(&sandbox, &second), "the program shows a question");
    assert!(!danger.exists() && !person.shown().contains("PLUGH"), "{}", person.shown());
    // The person denies.
    person.types("\x1b");
    result(&sandbox, "codex", &second, "executed");
    let is_asked = || model.prompts().iter().any(|prompt| prompt == "SAY PLUGH").then_some(());
    poll::until("the second prompt", is_asked);
    assert!(!danger.exists());
}

#[test]
fn real_gemini_completes_no_typed_text() {
    let (sandbox, model) = (workspace(), Model::start());
    let test = "real_gemini_completes_no_typed_text";
    let Some(_person) = start(test, &sandbox, &model) else { return };
    // The client would complete a command, a file, a skill; a tab moves its cursor away from the end of the text.
    for text in ["/help SAY one", "SAY two @nowhere", "SAY three /about", "SAY four src/", "SAY five\tend"] {
        let id = execute(&sandbox, text);
        result(&sandbox, "codex", &id, "executed");
        let is_asked = || {
            let sent = text.trim_start_matches('/');
            model.prompts().iter().any(|prompt| prompt.trim_end() == sent).then_some(())
        };
        poll::until(text, is_asked);
    }
}
