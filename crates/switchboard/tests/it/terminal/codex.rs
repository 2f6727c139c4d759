//! Mail for a real Codex that asks for a permission.

use test_support::model::Model;
use test_support::{codex, poll, tools};

use super::person::Person;
use super::{execute, pid_of, result, waits};
use crate::workspace;

/// Makes the model run a command outside of the sandbox, for which Codex asks the person.
const ESCALATED: &str = r#"CALL exec_command {"cmd": "touch danger.txt", "sandbox_permissions": "require_escalated", "justification": "test"}"#;

const NOTICE: &str = "[switchboard] 1 new message from claude: run check_inbox";

#[test]
fn real_codex_permission_dialog_gets_no_key() {
    let program = match codex::program() {
        Ok(program) => program,
        Err(reason) => return tools::skip("real_codex_permission_dialog_gets_no_key", &reason),
    };
    let (sandbox, model) = (workspace(), Model::start());
    sandbox.configure_user(r#"{"terminals": {"idleMs": 200}}"#);
    let home = sandbox.home().join("codex");
    codex::prepare_home(&home, sandbox.path());
    let home = format!("CODEX_HOME={}", home.display());
    let approvals = ["-c", r#"approval_policy="on-request""#, "-s", "read-only"];
    let mut args: Vec<String> =
        ["run", "--name", "codex", "--notify-mail", "--", "env", &home, &program].map(str::to_owned).to_vec();
    args.extend(model.codex_args().into_iter().chain(approvals.map(str::to_owned)));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let person = Person::sit_down(&sandbox, &args);
    poll::until("the terminal to be registered", || pid_of(&sandbox, "codex"));
    let danger = sandbox.path().join("danger.txt");
    // Sent during the start: it is typed once there is an input field, and then the model has been called.
    let first = execute(&sandbox, "claude", ESCALATED);
    result(&sandbox, "claude", &first, "executed");
    let prompted = |text: &str| model.prompts().iter().filter(|prompt| *prompt == text).count();
    poll::until("the first prompt", || (prompted(ESCALATED) > 0).then_some(()));
    person.until_shown("danger.txt`");
    let second = execute(&sandbox, "claude", "SAY PLUGH");
    sandbox.send("claude", "codex", "an ordinary task");
    assert_eq!(waits(&sandbox, &second), "the program shows a question");
    assert_eq!(sandbox.json(["receipt", &second])[0]["deliveries"][0]["state"], "delivered");
    assert!(!danger.exists() && !person.shown().contains("PLUGH"), "{}", person.shown());
    // The person denies.
    person.types("\x1b");
    result(&sandbox, "claude", &second, "executed");
    for text in ["SAY PLUGH", NOTICE] {
        poll::until(text, || (prompted(text) > 0).then_some(()));
        assert_eq!(prompted(text), 1, "{:?}", model.prompts());
    }
    assert!(!danger.exists());
}
