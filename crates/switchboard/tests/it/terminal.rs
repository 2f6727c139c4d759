//! `switchboard run`: a person's terminal, a program in it, and mail that is typed.

mod claude;
mod codex;
mod gemini;
pub(crate) mod person;

use std::path::PathBuf;

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::{Value, json};
use test_support::{RunOutput, Sandbox, files, poll};

use self::person::Person;
use crate::workspace;

/// Writes every line it reads to the file `typed`, and reports when it is ready.
const SCRIBE: [&str; 3] =
    ["sh", "-c", "echo ready; while IFS= read -r line; do printf '%s\\n' \"$line\" >> typed; done"];

fn run<'a>(name: &'a str, command: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--name", name, "--"], command].concat()
}

/// Starts a terminal in which the scribe runs for `codex`, and waits until mail is typed.
fn scribe(sandbox: &Sandbox) -> Person {
    let person = Person::sit_down(sandbox, &run("codex", &SCRIBE));
    person.until_shown("ready");
    poll::until("the terminal to be registered", || pid_of(sandbox, "codex"));
    person
}

/// Returns the process id that is registered for an agent's terminal.
fn pid_of(sandbox: &Sandbox, agent: &str) -> Option<u32> {
    let state = files::read_json_object(&sandbox.file("state.json"))?;
    state["terminals"][agent]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

fn execute(sandbox: &Sandbox, from: &str, text: &str) -> String {
    sandbox.run_as(from, ["send", "codex", text, "--kind", "execute"]).ok()
}

/// Waits for the status of an execute message: `executed`, `failed` or `refused`.
fn result(sandbox: &Sandbox, sender: &str, id: &str, status: &str) -> Value {
    let path = sandbox.file(&format!("outbox/{sender}/{id}.{status}.receipt.json"));
    poll::until(&format!("{id} to be {status}"), || files::read_json_object(&path))
}

fn typed(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path().join("typed")).unwrap_or_default()
}

/// Waits until the scribe has recorded this number of lines.
fn lines(sandbox: &Sandbox, count: usize) -> Vec<String> {
    poll::until(&format!("{count} lines"), || {
        let lines: Vec<String> = typed(sandbox).lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn is_running(pid: u32) -> bool {
    Pid::from_raw(i32::try_from(pid).unwrap()).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Returns a Python program with an input field: it shows `prompt`, records every key in the file `keys`, and after a
/// key that is no paste shows an input field. `echo` is its reaction to a paste.
fn fake(sandbox: &Sandbox, prompt: &str, echo: &str) -> String {
    let path = sandbox.path().join("fake.py");
    let script = include_str!("terminal/fake.py").replace("@PROMPT@", prompt).replace("@ECHO@", echo);
    files::put(&path, script);
    path.display().to_string()
}

fn fake_field(sandbox: &Sandbox, prompt: &str, echo: &str) -> Person {
    let program = fake(sandbox, prompt, echo);
    let person = Person::sit_down(sandbox, &run("codex", &["python3", &program]));
    person.until_shown("\u{1b}[?2004h");
    poll::until("the terminal to be registered", || pid_of(sandbox, "codex"));
    person
}

fn field(sandbox: &Sandbox, prompt: &str) -> Person {
    fake_field(sandbox, prompt, "echo")
}

/// Returns the keys that the program with an input field has read.
fn keys(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path().join("keys")).unwrap_or_default()
}

/// Waits until the receipt states why a message is not typed yet; returns the reason.
fn waits(sandbox: &Sandbox, id: &str) -> String {
    poll::until("a reason", || {
        let terminal = sandbox.json(["receipt", id])[0]["terminal"].clone();
        (terminal["status"] == "queued").then(|| terminal["reason"].as_str().unwrap().to_owned())
    })
}

fn drop_execute(sandbox: &Sandbox, id: &str, payload: &str) -> PathBuf {
    let path = sandbox.file(&format!("inbox/codex/{id}.json"));
    let file = json!({ "id": id, "action": "execute", "sender": "claude", "recipient": "codex", "payload": payload });
    files::put_by_rename(&path, file.to_string());
    path
}

#[test]
fn execute_is_typed_once_with_one_enter() {
    let sandbox = workspace();
    let mut person = Person::sit_down(&sandbox, &run("codex", &["bash", "--norc", "--noprofile", "-i"]));
    person.until_shown("$ ");
    let id = execute(&sandbox, "claude", "echo sum=$((20+3))");
    person.until_shown("sum=23");
    assert_eq!(result(&sandbox, "claude", &id, "executed")["summary"], "Typed into the terminal of 'codex'");
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "acknowledged");
    assert!(files::message_files(&sandbox.file("inbox/codex")).is_empty());
    assert_eq!(files::message_files(&sandbox.file("archive/codex")), [format!("{id}.json")]);
    person.types("echo me=$SWITCHBOARD_AGENT_NAME,$SWITCHBOARD_WORKSPACE_ROOT; exit 7\r");
    assert_eq!(person.end().code(), Some(7));
    let shown = person.shown();
    assert_eq!(shown.matches("sum=23").count(), 1, "{shown}");
    assert!(shown.contains(&format!("me=codex,{}", sandbox.path().display())), "{shown}");
    let agents = sandbox.json(["agents"]);
    let codex = agents.iter().find(|agent| agent["name"] == "codex").unwrap();
    assert_eq!((&codex["presence"], &codex["status"]), (&json!("offline"), &json!("offline")));
    assert_eq!(codex["status_message"], "its program ended with code 7");
}

#[test]
fn execute_order_holds_and_other_mail_waits() {
    let sandbox = workspace();
    let mut person = scribe(&sandbox);
    sandbox.send("claude", "codex", "a task, not to be typed");
    let ids: Vec<String> =
        (1..=5).map(|number| execute(&sandbox, "claude", &format!("line {number}"))).collect();
    sandbox.run_as("claude", ["send", "codex", "nor this", "--kind", "status_update"]).ok();
    for id in &ids {
        result(&sandbox, "claude", id, "executed");
    }
    assert_eq!(lines(&sandbox, 5), ["line 1", "line 2", "line 3", "line 4", "line 5"]);
    assert_eq!(files::message_files(&sandbox.file("inbox/codex")).len(), 2);
    person.types("\x04");
    assert_eq!(person.end().code(), Some(0));
    assert_eq!(typed(&sandbox).lines().count(), 5);
}

#[test]
fn mail_before_the_run_is_never_typed() {
    let sandbox = workspace();
    let old = sandbox.run_as("claude", ["send", "codex", "old", "--kind", "execute"]);
    assert_eq!(old.code, Some(5), "{old:?}");
    let prepared = drop_execute(&sandbox, "msg_1763000000000_prepared", "prepared");
    let person = scribe(&sandbox);
    result(&sandbox, "claude", "msg_1763000000000_prepared", "refused");
    let new = execute(&sandbox, "claude", "new");
    result(&sandbox, "claude", &new, "executed");
    assert_eq!(lines(&sandbox, 1), ["new"]);
    assert!(prepared.exists());
    drop(person);
    // The next run does not type it either.
    let person = scribe(&sandbox);
    let last = execute(&sandbox, "claude", "last");
    result(&sandbox, "claude", &last, "executed");
    assert_eq!(lines(&sandbox, 2), ["new", "last"]);
    drop(person);
}

#[test]
fn dropped_file_needs_owner_permission() {
    for allowed in [false, true] {
        let sandbox = workspace();
        let config = json!({ "terminals": { "executeFromFiles": allowed } });
        sandbox.configure_user(&config.to_string());
        let _person = scribe(&sandbox);
        let id = "msg_9763000000000_dropped";
        drop_execute(&sandbox, id, "dropped");
        let receipt = result(&sandbox, "claude", id, if allowed { "executed" } else { "refused" });
        if allowed {
            assert_eq!(lines(&sandbox, 1), ["dropped"]);
        } else {
            assert!(
                receipt["error"].as_str().unwrap().contains("its sender is not authenticated"),
                "{receipt}"
            );
            let sent = execute(&sandbox, "claude", "sent");
            result(&sandbox, "claude", &sent, "executed");
            assert_eq!(lines(&sandbox, 1), ["sent"]);
        }
    }
}

#[test]
fn control_keys_are_not_typed() {
    let sandbox = workspace();
    let _person = scribe(&sandbox);
    let id = execute(&sandbox, "claude", "  !/$ two\nlines\x1b[201~\r\x03 and \ta \x1b]0;t\x07tab\n");
    result(&sandbox, "claude", &id, "executed");
    assert_eq!(lines(&sandbox, 1), ["two lines  and  a tab"]);
    let nothing = execute(&sandbox, "claude", "/// \x1b[A");
    result(&sandbox, "claude", &nothing, "refused");
}

#[test]
fn lines_are_sent_as_one_paste() {
    let sandbox = workspace();
    let person = field(&sandbox, "> ");
    let id = execute(&sandbox, "claude", "one\n\ttwo");
    result(&sandbox, "claude", &id, "executed");
    poll::until("Enter", || keys(&sandbox).ends_with("<Enter>").then_some(()));
    assert_eq!(keys(&sandbox), "<paste>one\n\ttwo</paste><Enter>");
    drop(person);
}

#[test]
fn long_text_arrives_complete() {
    let sandbox = workspace();
    let text = "grüße ".repeat(500);
    let text = text.trim_end();
    let _person = field(&sandbox, "> ");
    let id = execute(&sandbox, "claude", text);
    result(&sandbox, "claude", &id, "executed");
    poll::until("Enter", || keys(&sandbox).ends_with("<Enter>").then_some(()));
    assert_eq!(keys(&sandbox), format!("<paste>{text}</paste><Enter>"));
}

#[test]
fn partly_typed_text_fails_with_its_progress() {
    let sandbox = workspace();
    let _person = scribe(&sandbox);
    let id = execute(&sandbox, "claude", &"x".repeat(5000));
    let receipt = result(&sandbox, "claude", &id, "failed");
    assert!(receipt["error"].as_str().unwrap().contains("this one has 5000; nothing was typed"), "{receipt}");
    let fine = execute(&sandbox, "claude", "fine");
    result(&sandbox, "claude", &fine, "executed");
    assert_eq!(lines(&sandbox, 1), ["fine"]);
}

#[test]
fn program_that_stops_reading_times_out() {
    let sandbox = workspace();
    let program = "stty raw -echo; printf '\\033[?2004h> '; exec sleep 1000";
    let mut person = Person::sit_down(&sandbox, &run("codex", &["sh", "-c", program]));
    person.until_shown("> ");
    let id = execute(&sandbox, "claude", &"x".repeat(60_000));
    let receipt = result(&sandbox, "claude", &id, "failed");
    let error = receipt["error"].as_str().unwrap();
    assert!(
        error.starts_with("the program did not read for 5 s;") && error.ends_with("without Enter"),
        "{error}"
    );
    person.signal(Signal::TERM);
    assert_eq!(person.end().code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn half_typed_line_gets_no_text() {
    let sandbox = workspace();
    let person = scribe(&sandbox);
    person.types("draft ");
    person.until_shown("draft ");
    let id = execute(&sandbox, "claude", "typed for claude");
    assert_eq!(waits(&sandbox, &id), "the program shows no empty input field");
    person.types("of mine\r");
    result(&sandbox, "claude", &id, "executed");
    assert_eq!(lines(&sandbox, 2), ["draft of mine", "typed for claude"]);
}

#[test]
fn single_key_dialog_gets_nothing() {
    for question in [
        "Run `touch danger.txt`? (y/n) ",
        "Do you want to proceed?\\r\\n\u{276f} 1. Yes\\r\\n  2. No\\r\\n",
        "\u{276f} 1. Yes\\r\\n  2. No\\r\\n\\r\\n> ",
        "  Trust this folder\\r\\n\\r\\n> \\r\\n  Enter to confirm \u{b7} Esc to cancel\\033[A\\r> ",
    ] {
        let sandbox = workspace();
        let person = field(&sandbox, question);
        let id = execute(&sandbox, "claude", "y yes 1");
        assert_eq!(waits(&sandbox, &id), "the program shows a question", "{question}");
        assert_eq!(keys(&sandbox), "", "{question}");
        assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "delivered");
        assert!(sandbox.run(["receipt", &id]).stdout.contains("not typed yet: the program shows a question"));
        // The person answers, and the program shows its input field.
        person.types("n");
        result(&sandbox, "claude", &id, "executed");
        poll::until("Enter", || keys(&sandbox).ends_with("<Enter>").then_some(()));
        assert_eq!(keys(&sandbox), "n<paste>y yes 1</paste><Enter>", "{question}");
    }
}

#[test]
fn notice_waits_for_open_question() {
    let sandbox = workspace();
    sandbox.configure_user(r#"{"terminals": {"idleMs": 200}}"#);
    let program = fake(&sandbox, "Allow? (y/n) ", "echo");
    let args = ["run", "--name", "codex", "--notify-mail", "--", "python3", &program];
    let person = Person::sit_down(&sandbox, &args);
    person.until_shown("(y/n)");
    poll::until("the terminal to be registered", || pid_of(&sandbox, "codex"));
    sandbox.send("claude", "codex", "a task");
    let id = execute(&sandbox, "claude", "later");
    assert_eq!(waits(&sandbox, &id), "the program shows a question");
    assert_eq!(keys(&sandbox), "");
    person.types("n");
    result(&sandbox, "claude", &id, "executed");
    let notice = "<paste>[switchboard] 1 new message from claude: run check_inbox</paste><Enter>";
    poll::until("the notice", || keys(&sandbox).contains(notice).then_some(()));
    assert_eq!(keys(&sandbox).matches("[switchboard]").count(), 1);
}

#[test]
fn starting_program_gets_nothing() {
    let sandbox = workspace();
    let program = "echo starting; until [ -e go ]; do sleep 0.05; done; stty raw -echo; printf '\\033[?2004h> '; \
                   exec sleep 1000";
    let person = Person::sit_down(&sandbox, &run("codex", &["sh", "-c", program]));
    person.until_shown("starting");
    let id = execute(&sandbox, "claude", "too early");
    assert_eq!(waits(&sandbox, &id), "the program does not take input now");
    assert!(!person.shown().contains("too early"), "{}", person.shown());
    files::put(sandbox.path().join("go"), "");
    // Now there is an input field, but it swallows the text: that is not `executed` either.
    person.until_shown("> ");
    let reason = poll::until("the paste to be missed", || {
        Some(waits(&sandbox, &id)).filter(|reason| reason.contains("did not appear"))
    });
    assert!(reason.starts_with("the text did not appear in the input field"), "{reason}");
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "delivered");
}

#[test]
fn wrong_echo_is_removed_and_not_entered() {
    let sandbox = workspace();
    let _person = fake_field(&sandbox, "> ", "upper");
    let id = execute(&sandbox, "claude", "text");
    let taken_back = poll::until("the removal", || {
        Some(waits(&sandbox, &id)).filter(|reason| reason.contains("was removed"))
    });
    assert!(taken_back.starts_with("the text did not appear"), "{taken_back}");
    assert!(keys(&sandbox).starts_with("<paste>text</paste><Kill>"), "{}", keys(&sandbox));
    assert!(!keys(&sandbox).contains("<Enter>"), "{}", keys(&sandbox));
}

#[test]
fn dialog_after_paste_gets_no_enter() {
    let sandbox = workspace();
    let person = fake_field(&sandbox, "> ", "dialog");
    let id = execute(&sandbox, "claude", "text");
    person.until_shown("1. Yes");
    poll::until("the reason", || (waits(&sandbox, &id) == "the program shows a question").then_some(()));
    assert_eq!(keys(&sandbox), "<paste>text</paste>");
    person.types("n");
    result(&sandbox, "claude", &id, "executed");
    poll::until("Enter", || keys(&sandbox).ends_with("<Enter>").then_some(()));
    assert_eq!(keys(&sandbox), "<paste>text</paste>n<paste>text</paste><Enter>");
}

#[test]
fn user_keys_never_split_typed_text() {
    let sandbox = workspace();
    let person = scribe(&sandbox);
    let id = execute(&sandbox, "claude", &"m".repeat(2000));
    poll::until("the typing to begin", || person.shown().contains("mmm").then_some(()));
    person.types("person\r");
    result(&sandbox, "claude", &id, "executed");
    assert_eq!(lines(&sandbox, 2), ["m".repeat(2000), "person".to_owned()]);
}

#[test]
fn ctrl_c_aborts_typing() {
    let sandbox = workspace();
    let person = scribe(&sandbox);
    let id = execute(&sandbox, "claude", &"m".repeat(4000));
    poll::until("the typing to begin", || person.shown().contains("mmm").then_some(()));
    person.types("\x03");
    let receipt = result(&sandbox, "claude", &id, "failed");
    assert!(receipt["error"].as_str().unwrap().starts_with("the person pressed Ctrl-C; "), "{receipt}");
}

#[test]
fn window_size_reaches_the_program() {
    let sandbox = workspace();
    let program = "trap 'stty size' WINCH; stty size; while :; do read -r -t 0.2 line; done";
    let person = Person::sit_down(&sandbox, &run("codex", &["bash", "-c", program]));
    person.until_shown("33 101");
    person.resize(44, 122);
    person.until_shown("44 122");
}

#[test]
fn user_terminal_is_restored() {
    let sandbox = workspace();
    for end in [None, Some(Signal::TERM), Some(Signal::HUP)] {
        let before = Person::settings_of_a_new_terminal();
        let mut person =
            Person::sit_down(&sandbox, &run("codex", &["sh", "-c", "echo ready; read line; exit 3"]));
        person.until_shown("ready");
        poll::until("raw mode", || (person.settings() != before).then_some(()));
        match end {
            Some(signal) => person.signal(signal),
            None => person.types("\r"),
        }
        let code = person.end().code();
        assert_eq!(code, end.map_or(Some(3), |signal| Some(128 + signal.as_raw())));
        assert_eq!(person.settings(), before);
    }
}

#[test]
fn run_can_be_stopped_and_continued() {
    let sandbox = workspace();
    let before = Person::settings_of_a_new_terminal();
    let person = scribe(&sandbox);
    poll::until("raw mode", || (person.settings() != before).then_some(()));
    person.signal(Signal::TSTP);
    poll::until("the terminal to be restored", || (person.settings() == before).then_some(()));
    person.signal(Signal::CONT);
    poll::until("raw mode again", || (person.settings() != before).then_some(()));
    person.types("still here\r");
    assert_eq!(lines(&sandbox, 1), ["still here"]);
}

#[test]
fn text_that_ends_program_counts_typed() {
    let sandbox = workspace();
    let mut person = Person::sit_down(&sandbox, &run("codex", &["bash", "--norc", "--noprofile", "-i"]));
    person.until_shown("$ ");
    let id = execute(&sandbox, "claude", "exit 6");
    assert_eq!(person.end().code(), Some(6));
    result(&sandbox, "claude", &id, "executed");
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "acknowledged");
}

#[test]
fn signals_are_forwarded_to_the_program() {
    let sandbox = workspace();
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        let program =
            format!("trap 'echo heard; exit 9' {name}; echo ready; while :; do read -r -t 0.2 line; done");
        let mut person = Person::sit_down(&sandbox, &run("codex", &["bash", "-c", &program]));
        person.until_shown("ready");
        person.signal(signal);
        assert_eq!(person.end().code(), Some(9), "{name}");
        assert!(person.shown().contains("heard"), "{name}");
    }
    // Ctrl-C in raw mode is an ordinary key, and the program's own terminal turns it into a signal.
    let program = "trap 'exit 8' INT; echo ready; while :; do read -r -t 0.2 line; done";
    let mut person = Person::sit_down(&sandbox, &run("codex", &["bash", "-c", program]));
    person.until_shown("ready");
    person.types("\x03");
    assert_eq!(person.end().code(), Some(8));
    let mut person = Person::sit_down(&sandbox, &run("codex", &["sh", "-c", "kill -9 $$"]));
    assert_eq!(person.end().code(), Some(137));
}

#[test]
fn killed_run_leaves_nothing_running() {
    let sandbox = workspace();
    let program = "sleep 1000 & echo child=$!; echo ready; wait";
    let mut person = Person::sit_down(&sandbox, &run("codex", &["bash", "--norc", "-c", program]));
    person.until_shown("ready");
    let leader = poll::until("the terminal to be registered", || pid_of(&sandbox, "codex"));
    let shown = person.shown();
    let child: u32 = shown.split("child=").nth(1).unwrap().lines().next().unwrap().trim().parse().unwrap();
    assert!(is_running(leader) && is_running(child));
    let presence = || sandbox.json(["who", "codex"])[0]["presence"].clone();
    assert_eq!(presence(), "awake");
    person.signal(Signal::KILL);
    person.end();
    assert_eq!(presence(), "offline", "whatever has become of its program by now");
    poll::until("the program to end", || (!is_running(leader)).then_some(()));
    poll::until("its child to end", || (!is_running(child)).then_some(()));
    // Nothing prevents the next run.
    let _person = scribe(&sandbox);
}

/// Detaches as an agent's terminal does with its commands: another session, no parent, no environment.
const DETACH: &str = r#"( env -i "$(command -v setsid)" "$(command -v sh)" -c 'trap "" HUP TERM; echo detached=$$; exec '"$(command -v sleep)"' 1000' & ); echo ready;"#;

fn detached(person: &Person) -> u32 {
    let pid = poll::until("the detached process", || {
        let shown = person.shown();
        let pid = shown.split("detached=").nth(1)?.split_once(['\r', '\n'])?.0.to_owned();
        Some(pid)
    });
    pid.parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn detached_processes_end_when_run_is_killed() {
    let sandbox = workspace();
    let program = format!("{DETACH} while :; do read -r -t 1 line; done");
    for _ in 0..5 {
        let mut person = Person::sit_down(&sandbox, &run("codex", &["bash", "--norc", "-c", &program]));
        let child = detached(&person);
        assert!(is_running(child));
        person.signal(Signal::KILL);
        person.end();
        poll::until("the detached process to end", || (!is_running(child)).then_some(()));
    }
}

#[test]
fn detached_processes_outlive_a_program_that_ends() {
    let sandbox = workspace();
    let program = format!("{DETACH} read -r line; exit 4");
    let mut person = Person::sit_down(&sandbox, &run("codex", &["bash", "--norc", "-c", &program]));
    let child = detached(&person);
    person.types("\n");
    assert_eq!(person.end().code(), Some(4));
    assert!(is_running(child));
    let child = Pid::from_raw(i32::try_from(child).unwrap()).unwrap();
    rustix::process::kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn interrupted_typing_is_uncertain_and_not_retried() {
    let sandbox = workspace();
    let mut person = scribe(&sandbox);
    let id = execute(&sandbox, "claude", &"m".repeat(3000));
    poll::until("the typing to begin", || person.shown().contains("mmm").then_some(()));
    person.signal(Signal::KILL);
    person.end();
    let _person = scribe(&sandbox);
    let receipt = result(&sandbox, "claude", &id, "failed");
    assert!(receipt["error"].as_str().unwrap().contains("it may not have been typed"), "{receipt}");
    let next = execute(&sandbox, "claude", "next");
    result(&sandbox, "claude", &next, "executed");
    let lines = poll::until("the next line", || {
        let lines: Vec<String> = typed(&sandbox).lines().map(str::to_owned).collect();
        (lines.last()? == "next").then_some(lines)
    });
    assert!(lines.iter().filter(|line| line.starts_with('m')).count() <= 1, "{lines:?}");
    assert!(!sandbox.file(&format!("inbox/codex/{id}.json")).exists());
}

#[test]
fn second_run_names_the_first() {
    let sandbox = workspace();
    let person = scribe(&sandbox);
    let ran = sandbox.run(run("Codex", &["true"]));
    assert!(ran.stderr.contains(&format!("process {} on", person.id())), "{ran:?}");
    assert_snapshot!(sandbox.shown(&ran), @"
    exit 3
    --- stderr
    error: process [pid] on [host] already runs the terminal of 'codex' in this workspace
    hint: use the running terminal, end it first, or choose another name
    ");
    assert_eq!(sandbox.run(run("claude", &["true"])).code, Some(0));
}

#[test]
fn run_works_with_pipes() {
    let sandbox = workspace();
    let copy = run("codex", &["sh", "-c", "echo ready; cat > typed; exit 5"]);
    for input in ["one\ntwo\n", "one\nno newline at the end", ""] {
        let ran = RunOutput::with_input(&mut sandbox.command(&copy), input.as_bytes());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(5), ""));
        assert!(ran.stdout.contains("ready"), "{ran:?}");
        assert_eq!(typed(&sandbox), input);
    }
    let ran = sandbox.run(run("codex", &["sh", "-c", "stty size; exit 4"]));
    assert_eq!((ran.code, ran.stdout.trim()), (Some(4), "24 80"));
}

#[test]
fn missing_program_is_an_error() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(run("codex", &["no-such-program"])), @"
    exit 1
    --- stderr
    error: cannot run `no-such-program`: No such file or directory (os error 2)
    hint: check the command after `--`, and that it is in PATH
    ");
    assert_eq!(sandbox.run(["run", "--name", "codex"]).code, Some(2));
    assert_eq!(sandbox.run(run("human", &["true"])).code, Some(4));
    assert_eq!(sandbox.run(run("a/b", &["true"])).code, Some(2));
}

#[test]
fn mail_notice_is_opt_in_once() {
    let sandbox = workspace();
    sandbox.configure_user(r#"{"terminals": {"idleMs": 200}}"#);
    let args = [&["run", "--name", "codex", "--notify-mail", "--"], &SCRIBE[..]].concat();
    let person = Person::sit_down(&sandbox, &args);
    person.until_shown("ready");
    poll::until("the terminal to be registered", || pid_of(&sandbox, "codex"));
    sandbox.send("claude", "codex", "a task");
    let notice = "[switchboard] 1 new message from claude: run check_inbox";
    assert_eq!(lines(&sandbox, 1), [notice]);
    sandbox.send("claude", "codex", "another");
    let id = execute(&sandbox, "claude", "in between");
    result(&sandbox, "claude", &id, "executed");
    assert_eq!(lines(&sandbox, 2), [notice, "in between"], "one notice until the mail is read");
    sandbox.run_as("codex", ["inbox"]).ok();
    sandbox.send("claude", "codex", "a third");
    assert_eq!(lines(&sandbox, 3)[2], notice);
}

#[test]
fn host_reads_input_from_the_bridge() {
    let sandbox = workspace();
    let config = json!({ "terminals": { "bridge": true } });
    sandbox.configure_user(&config.to_string());
    let mut state = files::read_json_object(&sandbox.file("state.json")).unwrap();
    state["terminals"]["codex"] =
        json!({ "pid": std::process::id(), "purpose": "coding", "status": "active" });
    files::put_by_rename(sandbox.file("state.json"), state.to_string());
    drop_execute(&sandbox, "msg_1763000000000_old", "old");
    let mut serve = sandbox.serve();
    // The refusal of the old message shows that the terminal is served from now on.
    result(&sandbox, "claude", "msg_1763000000000_old", "refused");
    let id = execute(&sandbox, "claude", "/make\ttest");
    let bridge = sandbox.file("bridge.json");
    let request = poll::until("a request", || {
        files::read_json_object(&bridge)?["requests"]
            .as_array()
            .and_then(|requests| requests.first().cloned())
    });
    assert_eq!(
        (&request["id"], &request["terminal"], &request["input"]),
        (&json!(id), &json!("codex"), &json!("make test"))
    );
    let answer = json!({ "version": 1, "requests": [], "responses": [{ "id": id, "status": "executed" }] });
    files::put_by_rename(&bridge, answer.to_string());
    result(&sandbox, "claude", &id, "executed");
    assert_eq!(serve.terminate().code(), Some(0));
    assert_eq!(files::read_json_object(&bridge).unwrap()["responses"], json!([]));
}

#[test]
fn execute_follows_the_forwards() {
    let sandbox = workspace();
    let link = |from: &str, to: &str| {
        sandbox.configure_user(&json!({ "links": { "forwards": { from: to } } }).to_string());
    };
    let _person = scribe(&sandbox);
    link("codex", "claude");
    let refused = sandbox.run(["send", "codex", "ls", "--kind", "execute"]);
    assert!(
        refused.code == Some(5) && refused.stderr.contains("no terminal of 'claude' runs"),
        "{refused:?}"
    );
    link("desk", "codex");
    sandbox.ok(["send", "desk", "by a forward", "--kind", "execute"]);
    assert_eq!(lines(&sandbox, 1), ["by a forward"]);
}

#[test]
fn channel_post_is_never_an_execute() {
    let sandbox = workspace();
    let post =
        ["channel", "post", "--channel", "general", "--to", "codex", "--kind", "execute", "--text", "ls"];
    let refused = sandbox.run(post);
    assert!(refused.code == Some(2) && refused.stderr.contains("--kind execute"), "{refused:?}");
    assert_eq!(sandbox.json(["tail"]), Vec::<Value>::new());
}
