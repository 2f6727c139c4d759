//! `switchboard completions`

use test_support::process::command;
use test_support::{files, tools};

use crate::bare;

#[test]
fn every_shell_script_lists_the_verbs() {
    let sandbox = bare();
    for (shell, mark) in
        [("bash", "complete -F"), ("zsh", "#compdef switchboard"), ("fish", "complete -c switchboard")]
    {
        let script = sandbox.ok(["completions", shell]);
        assert!(script.contains(mark), "{shell}");
        for verb in [
            "init", "send", "inbox", "ack", "wait", "receipt", "agents", "team", "tail", "thread", "search",
            "serve", "doctor",
        ] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
        let path = sandbox.path().join(format!("script.{shell}"));
        files::put(&path, &script);
        match tools::run(command(shell).arg("-n").arg(&path)) {
            Err(reason) if reason.contains("os error 2") => eprintln!("syntax not checked: {reason}"),
            checked => assert_eq!(checked.as_deref(), Ok(""), "{shell}"),
        }
    }
    assert_eq!(sandbox.run(["completions", "csh"]).code, Some(2));
}
