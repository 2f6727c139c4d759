//! Crashes at every file call of one `send`, and disks that are full or fail from there on.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use test_support::fault::{Fault, Shim};
use test_support::{RunOutput, Running, Sandbox, files, poll, tools};

use super::{check, settle};
use crate::workspace;

/// How many of the slow sends run at once.
const WORKERS: usize = 16;

/// How many calls runs may differ by: concurrent work of two threads shares a transaction.
pub(super) const SPREAD: usize = 20;

/// After this number of surviving runs there are no more calls to be killed at.
pub(super) const SURVIVORS: usize = 3;

/// Error texts of a failing disk.
const IO_ERROR: [&str; 3] = ["Input/output error", "I/O error", "unable to open database file"];

pub(super) const ARGS: [&str; 5] = ["send", "codex", "hello", "--from", "claude"];

/// Returns the shim, or prints why it is unavailable and returns `None`.
pub(super) fn shim(test: &str) -> Option<Shim> {
    Shim::get(Path::new(env!("CARGO_TARGET_TMPDIR"))).map_err(|reason| tools::skip(test, &reason)).ok()
}

/// Returns a workspace to copy, and how many file calls a `send` in it makes.
pub(super) fn template(shim: &Shim) -> (Sandbox, usize) {
    let template = workspace();
    let calls = shim.count(&mut template.copy().command(ARGS));
    println!("{calls} file calls in one send");
    assert!(calls > 10, "the shim does not see the program's calls");
    (template, calls)
}

/// Runs a `send` in a copy of the workspace with an injected fault.
fn send(shim: &Shim, template: &Sandbox, fault: Fault) -> (Sandbox, RunOutput) {
    let sandbox = template.copy();
    let mut command: Command = sandbox.command(ARGS);
    let ran = RunOutput::of(shim.arm(&mut command, fault));
    (sandbox, ran)
}

fn killed(fault: impl Fn(usize) -> Fault, test: &str) {
    let Some(shim) = shim(test) else { return };
    let (template, calls) = template(&shim);
    let mut kills = 0;
    let mut present = 0;
    let mut survivors = 0;
    for at in 1..=calls + SPREAD {
        let (sandbox, ran) = send(&shim, &template, fault(at));
        let reported: Vec<String> = ran.stdout.lines().map(str::to_owned).collect();
        for name in files::message_files(&sandbox.file("inbox/codex")) {
            assert!(files::read_json_object(&sandbox.file("inbox/codex").join(name)).is_some());
        }
        if ran.code.is_some() {
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(at >= calls - SPREAD, "only {at} of {calls} calls were reached");
            survivors += 1;
            if survivors == SURVIVORS {
                break;
            }
            continue;
        }
        kills += 1;
        // Any verb may be the one that opens it after the crash.
        match at % 3 {
            0 => assert_eq!(sandbox.run(["doctor", "--fix"]).code, Some(0), "at {at}"),
            1 => drop(sandbox.ok(["inbox", "codex"])),
            _ => drop(sandbox.send("human", "claude", "the next message")),
        }
        settle(&sandbox);
        check(&sandbox, &reported);
        let found = sandbox.json(["inbox", "codex"]).len();
        assert!(found <= 1 && found >= reported.len(), "at {at}: {found} found, {reported:?} reported");
        present += found;
    }
    println!("killed {kills} times; the message was there after {present} of them");
    assert!(kills >= calls - SPREAD, "{kills} kills, {calls} calls");
    assert!(present > 0 && present < kills, "{present} of {kills}");
}

#[test]
fn crash_at_every_system_call_of_send() {
    killed(|at| Fault::Kill { at }, "crash_at_every_system_call_of_send");
}

#[test]
fn crash_within_every_write_of_send() {
    killed(|at| Fault::Tear { at }, "crash_within_every_write_of_send");
}

/// How a `send` on a failing disk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Refused,
    /// The disk failed for good between the commit and the wait for it: the outcome is unknown.
    NotKnown,
    AcceptedAndWaiting,
    Delivered,
}

/// Runs one `send` on a disk that fails from a call on, and checks the state once the disk has recovered.
fn fails(shim: &Shim, template: &Sandbox, fault: Fault, words: &[&str]) -> End {
    let (sandbox, ran) = send(shim, template, fault);
    let at = format!("{fault:?}: {ran:?}");
    let reported: Vec<String> = ran.stdout.lines().map(str::to_owned).collect();
    let files = files::message_files(&sandbox.file("inbox/codex"));
    let receipts = std::fs::read_dir(sandbox.file("outbox/claude")).map_or(0, Iterator::count);
    let end = match ran.code {
        Some(0) => End::Delivered,
        Some(3) if ran.stderr.contains("is not known") => End::NotKnown,
        Some(1 | 3) if reported.is_empty() => End::Refused,
        Some(3) => End::AcceptedAndWaiting,
        _ => panic!("{at}"),
    };
    if end == End::Delivered {
        assert_eq!(files, [format!("{}.json", reported[0])], "{at}");
    } else {
        assert!(ran.stderr.contains("error: ") && ran.stderr.contains("hint: "), "{at}");
        assert!(words.iter().any(|word| ran.stderr.contains(word)), "not clear: {at}");
    }
    let mut names = std::fs::read_dir(sandbox.file("inbox/codex")).unwrap();
    let is_temp = |name: &str| name.starts_with(".tmp-");
    assert!(!names.any(|name| is_temp(&name.unwrap().file_name().to_string_lossy())), "{at}");
    if files.is_empty() {
        assert_eq!(receipts, 0, "a receipt without a message: {at}");
    }
    sandbox.send("human", "claude", "the next message");
    settle(&sandbox);
    check(&sandbox, &reported);
    let found = sandbox.json(["inbox", "codex"]).len();
    match end {
        End::Refused => {
            assert_eq!(found, 0, "refused, and delivered all the same: {at}");
            sandbox.send("claude", "codex", "hello");
            assert_eq!(sandbox.json(["inbox", "codex"]).len(), 1, "{at}");
            sandbox.ok(["audit", "verify"]);
        }
        End::NotKnown => assert!(reported.is_empty() && found <= 1, "{found} found, {at}"),
        End::AcceptedAndWaiting | End::Delivered => assert_eq!(found, 1, "{at}"),
    }
    end
}

/// Number of sends by how they ended, over one run per file call.
struct Ends {
    refused: usize,
    not_known: usize,
    waiting: usize,
}

fn failing(fault: fn(usize) -> Fault, words: &[&str], test: &str) -> Option<Ends> {
    let shim = shim(test)?;
    let (template, calls) = template(&shim);
    // An accepted sender waits some seconds for its mailbox, so many of them wait in parallel.
    let next = AtomicUsize::new(1);
    let worker = || {
        let mut ends = Vec::new();
        loop {
            let from = next.fetch_add(1, Ordering::Relaxed);
            if from > calls {
                return ends;
            }
            ends.push(fails(&shim, &template, fault(from), words));
        }
    };
    let ends: Vec<End> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let count = |end| ends.iter().filter(|other| **other == end).count();
    let (refused, not_known, waiting) =
        (count(End::Refused), count(End::NotKnown), count(End::AcceptedAndWaiting));
    println!(
        "{refused} refused, {not_known} not known, {waiting} accepted and waiting, {} delivered",
        count(End::Delivered)
    );
    assert_eq!(ends.len(), calls);
    Some(Ends { refused, not_known, waiting })
}

/// On a disk that fails for good, only a few calls are between the commit and the wait for it.
fn failing_for_good(fault: fn(usize) -> Fault, words: &[&str], test: &str) {
    let Some(ends) = failing(fault, words, test) else { return };
    assert!(ends.refused > 0 && ends.waiting > 0);
    assert!(ends.not_known <= 3, "{} sends whose sender was not told", ends.not_known);
}

#[test]
fn crash_free_on_full_disk() {
    failing_for_good(
        |from| Fault::NoSpace { from },
        // SQLite reports only that it cannot create a log or an index, not why.
        &["No space left on device", "disk is full", "disk I/O error", "unable to open database file"],
        "crash_free_on_full_disk",
    );
}

#[test]
fn crash_free_on_failing_disk() {
    failing_for_good(|from| Fault::IoError { from }, &IO_ERROR, "crash_free_on_failing_disk");
}

#[test]
fn crash_free_after_single_failed_call() {
    let test = "crash_free_after_single_failed_call";
    let Some(ends) = failing(|at| Fault::Once { at }, &IO_ERROR, test) else { return };
    assert!(ends.refused > 0);
    assert_eq!(ends.not_known, 0, "what one wait did not take can be taken back");
}

#[test]
fn crash_free_when_disk_fails_under_hub() {
    let Some(shim) = shim("crash_free_when_disk_fails_under_hub") else { return };
    failing_under_serve(&shim, Fault::IoError { from: 1 });
}

/// Nothing is acknowledged meanwhile, and `serve` resumes without a restart.
#[test]
fn crash_free_when_disk_turns_read_only() {
    let Some(shim) = shim("crash_free_when_disk_turns_read_only") else { return };
    failing_under_serve(&shim, Fault::ReadOnly { from: 1 });
}

/// Runs a `serve` whose disk fails for a while. SQLite reports any failed write as an I/O error.
fn failing_under_serve(shim: &Shim, fault: Fault) {
    let sandbox = workspace();
    files::put(sandbox.path().join("switchboard.config.json"), r#"{"workspace": {"rescanMs": 100}}"#);
    let flag = sandbox.path().join("disk-fails");
    let mut serve = Running::start(shim.arm_while(&mut sandbox.command(["serve"]), fault, &flag));
    assert!(serve.line().starts_with("Serving "));
    let receipt = |id: &str| sandbox.file(&format!("outbox/claude/{id}.receipt.json"));
    sandbox.deliver_two_files();
    files::put(&flag, "");
    sandbox.drop_file("msg_1763000000003_during", "claude", "codex", "during");
    poll::until("the failure to be noticed", || serve.errors().contains("I/O").then_some(()));
    assert!(!receipt("msg_1763000000003_during").exists());
    std::fs::remove_file(&flag).unwrap();
    let arrived = poll::within(poll::TIMEOUT, || receipt("msg_1763000000003_during").exists().then_some(()));
    assert!(arrived.is_some(), "not ingested after the disk had recovered: {}", serve.errors());
    sandbox.drop_file("msg_1763000000004_after", "claude", "codex", "after");
    poll::until("the last receipt", || receipt("msg_1763000000004_after").exists().then_some(()));
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    check(&sandbox, &[]);
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 4);
}
