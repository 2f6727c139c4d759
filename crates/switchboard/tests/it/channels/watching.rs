//! `switchboard watch`

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use insta::assert_snapshot;
use test_support::fault::{Fault, Shim};
use test_support::{Running, Sandbox, files, poll, tools};

use super::{Program, answer_to, messages, post};
use crate::workspace;

fn watch(sandbox: &Sandbox, program: &Program) -> Running {
    let watch = sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", program.path()]);
    assert_eq!(watch.line(), "qc-1 watches #general. Stop with Ctrl-C.");
    watch
}

#[test]
fn watcher_answer_reaches_person_mailbox() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "cat > prompt\necho the answer is 42");
    let watch = watch(&sandbox, &program);
    let sent = sandbox.json(["send", "qc-1", "what is it?"]);
    assert_eq!(sent[0]["deliveries"][0]["route"], "channel:general");
    let answer = poll::until("an answer", || sandbox.json(["inbox"]).into_iter().next());
    assert_eq!((&answer["from"], &answer["body"]), (&"qc-1".into(), &"the answer is 42".into()));
    assert_eq!(answer["in_reply_to"], sent[0]["id"]);
    let prompt = std::fs::read_to_string(sandbox.path().join("prompt")).unwrap();
    assert!(prompt.starts_with("You are qc-1") && prompt.contains("what is it?"), "{prompt}");
    drop(watch);
}

/// A watcher killed while its program runs answers after the restart, once.
#[test]
fn crash_of_watcher_during_answer() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "echo $$ > pid\n[ -e go ] || exec sleep 600\necho 42");
    let mut first = watch(&sandbox, &program);
    let question = post(&sandbox, "human", "qc-1", "what is it?");
    let pid = poll::until("the program to run", || {
        std::fs::read_to_string(sandbox.path().join("pid")).ok()?.trim().parse::<u32>().ok()
    });
    first.kill();
    // Its program ends with it, and does not run on next to the next watcher.
    poll::until("the program to end", || (!is_running(pid)).then_some(()));
    files::put(sandbox.path().join("go"), "");
    // Another sender posts meanwhile; that post is not lost either.
    let missed = post(&sandbox, "human", "all", "@qc-1 and this?");
    let second = watch(&sandbox, &program);
    assert_eq!(answer_to(&sandbox, &question)["content"]["text"], "42");
    answer_to(&sandbox, &missed);
    let answers = messages(&sandbox).iter().filter(|message| message["from"] == "qc-1").count();
    assert_eq!((answers, program.runs()), (2, 3));
    drop(second);
}

/// A watcher killed at any file system call between the end of its program and the posted answer has answered once
/// after the restart.
#[test]
fn crash_of_watcher_at_every_call() {
    const WORKERS: usize = 6;
    let shim = Shim::get(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let Ok(shim) = shim.inspect_err(|reason| tools::skip("c8_crash_at_every_call", reason)) else { return };
    let (next, survived) = (AtomicUsize::new(1), AtomicUsize::new(usize::MAX));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while survived.load(Ordering::Relaxed) == usize::MAX {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if !is_killed_and_answers_once(&shim, at) {
                        survived.fetch_min(at, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let survived = survived.into_inner();
    println!("{survived} calls in between");
    assert!(survived > 10, "the shim does not see the program's calls");
}

/// True if the watcher was killed before its answer was readable. In either case there is one answer at the end.
fn is_killed_and_answers_once(shim: &Shim, at: usize) -> bool {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "[ -e over ] || touch ended\necho 42");
    let mut command =
        sandbox.command(["watch", "--agent", "qc-1", "--channel", "general", "--", program.path()]);
    let ended = sandbox.path().join("ended");
    let mut first = Running::start(shim.arm_while(&mut command, Fault::Kill { at }, &ended));
    first.line();
    let question = post(&sandbox, "human", "qc-1", "what is it?");
    let answers = |id: &str| {
        messages(&sandbox).iter().filter(|message| message["metadata"]["in_reply_to"] == id).count()
    };
    let is_killed = poll::until("a kill or an answer", || {
        (!first.is_running()).then_some(true).or_else(|| (answers(&question) > 0).then_some(false))
    });
    // From here on nothing is killed.
    files::put(sandbox.path().join("over"), "");
    std::fs::remove_file(&ended).unwrap();
    // The answer to another question shows that the first one is finished.
    let next = post(&sandbox, "human", "qc-1", "and now?");
    let mut second = None;
    poll::until("both answers", || {
        // A process killed during a write ends only when the disk has finished it.
        if second.is_none() && !first.is_running() {
            second = Some(watch(&sandbox, &program));
        }
        (answers(&question) > 0 && answers(&next) > 0).then_some(())
    });
    assert_eq!((answers(&question), answers(&next)), (1, 1), "killed at call {at}");
    is_killed
}

#[test]
fn restarted_watcher_repeats_no_answer() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "echo 42");
    let mut first = watch(&sandbox, &program);
    let question = post(&sandbox, "human", "qc-1", "what is it?");
    answer_to(&sandbox, &question);
    assert!(first.terminate().success());
    let second = watch(&sandbox, &program);
    let next = post(&sandbox, "human", "qc-1", "and now?");
    answer_to(&sandbox, &next);
    assert_eq!(program.runs(), 2);
    drop(second);
}

#[test]
fn watcher_without_program_names_missing_setting() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["watch", "--agent", "qc-1", "--channel", "general"]), @"
    exit 2
    --- stderr
    error: no program is given that answers
    hint: give a program after `--`, or --preset codex, claude or gemini
    ");
}

/// True if a process runs; an ended one that is not reaped counts as ended.
fn is_running(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

#[test]
fn unworkable_watch_is_refused_early() {
    let sandbox = workspace();
    let watch =
        |args: &[&str]| sandbox.show([&["watch", "--channel", "general"], args, &["--", "true"]].concat());
    assert_snapshot!(watch(&["--agent", "qc-1", "--role", "nosuch.md"]), @"
    exit 5
    --- stderr
    error: there is no file nosuch.md
    hint: check --role and --memory
    ");
    assert_snapshot!(watch(&["--agent", "human"]), @"
    exit 2
    --- stderr
    error: 'agent' is 'human', but no program may answer for that agent
    ");
    assert_snapshot!(watch(&["--agent", "qc-1", "--timeout", "0s"]), @"
    exit 2
    --- stderr
    error: 'timeout' is 0, but a program needs at least 1 second
    ");
    assert_snapshot!(watch(&["--agent", "qc-1", "--env", "=x"]), @"
    exit 2
    --- stderr
    error: 'env' has '=x', which is not a valid variable name
    ");
}

#[test]
fn deprecated_id_watches_as_current_agent() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "echo 42");
    let watch = sandbox.start(["watch", "--agent", "claude-1", "--channel", "general", "--", program.path()]);
    assert_eq!(watch.line(), "claude watches #general. Stop with Ctrl-C.");
    let question = post(&sandbox, "human", "all", "@claude-1 what is it?");
    assert_eq!(answer_to(&sandbox, &question)["from"], "claude");
    assert_eq!(sandbox.json(["who", "claude"])[0]["presence"], "awake");
}

#[test]
fn missing_program_starts_no_watcher() {
    let sandbox = workspace();
    let args = ["watch", "--agent", "qc-1", "--channel", "general", "--", "nosuchprogram"];
    assert_snapshot!(sandbox.show(args), @"
    exit 5
    --- stderr
    error: there is no program 'nosuchprogram'
    hint: install it, or give another program after `--`
    ");
    assert!(!sandbox.file("signals/presence/qc-1.json").exists(), "it never looked awake");
}

/// Defaults of the specification: a failed call posts nothing, and a text that starts with the agent's id is for the
/// agent.
#[test]
fn failed_answer_shows_in_receipt() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "exit 7");
    let watch = watch(&sandbox, &program);
    let question = post(&sandbox, "codex", "all", "QC-1: is it done?");
    let note = poll::until("the receipt", || {
        let receipt = sandbox.json(["receipt", &question]).remove(0);
        let deliveries = receipt["deliveries"].as_array().unwrap().clone();
        let own = deliveries.into_iter().find(|delivery| delivery["agent"] == "qc-1")?;
        own["note"].as_str().map(str::to_owned)
    });
    assert_eq!(note, "no answer: the program ended with exit status: 7");
    assert_eq!((messages(&sandbox).len(), program.runs()), (1, 1), "nothing is posted");
    drop(watch);
}

/// Without a timeout, the sender would wait forever.
#[test]
fn waiting_sender_gets_the_failure() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "exit 7");
    let watch = watch(&sandbox, &program);
    let ran = sandbox.run(["send", "qc-1", "is it done?", "--wait", "--timeout", "100s"]);
    let problem = "error: qc-1 does not answer: the program ended with exit status: 7";
    assert!(ran.code == Some(3) && ran.stderr.contains(problem), "{ran:?}");
    drop(watch);
}

#[test]
fn unusable_program_starts_no_watcher() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = workspace();
    let put = |name: &str, text: &str, mode: u32| {
        let path = sandbox.path().join(name);
        files::put(&path, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    put("plain", "#!/bin/sh\n", 0o644);
    put("empty", "", 0o755);
    put("script", "#!/usr/bin/nosuchshell\n", 0o755);
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    for (program, problem) in [
        ("./plain", "error: ./plain is not executable"),
        ("./empty", "error: ./empty is empty"),
        (
            "./script",
            "error: ./script is a script for '/usr/bin/nosuchshell', which is not there or not executable",
        ),
        ("./folder", "error: ./folder is not a file"),
    ] {
        let ran = sandbox.run(["watch", "--agent", "qc-1", "--channel", "general", "--", program]);
        assert!(ran.code == Some(5) && ran.stderr.contains(problem), "{ran:?}");
    }
    let watcher = serde_json::json!({
        "agent": "qc-1", "channel": "general", "command": ["/bin/cat"], "folder": sandbox.path().join("gone"),
    });
    sandbox.configure_user(&serde_json::json!({ "channels": { "watchers": [watcher] } }).to_string());
    let report = sandbox.run(["doctor"]).stdout;
    assert!(report.contains("the watcher of qc-1 cannot start: the folder"), "{report}");
    let serve = sandbox.serve();
    assert!(!sandbox.file("signals/presence/qc-1.json").exists(), "it never looked awake");
    drop(serve);
}
