//! Processes killed at any moment: accepted messages are there once, and no file is partial.

mod every_call;
mod power_loss;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use test_support::{Running, Sandbox, files, poll};

use crate::BINARY;
use crate::child::{Role, child_line};

/// Rounds of the first random test, and twice those of the second; `SWITCHBOARD_CRASH_ROUNDS` sets another number.
const ROUNDS: usize = 200;

#[test]
fn crash_at_random_moments_loses_no_message() {
    rounds(1, false);
}

#[test]
fn crash_during_acknowledgement_by_other_process() {
    rounds(2, true);
}

/// Runs the rounds divided by `share`.
fn rounds(share: usize, with_acks: bool) {
    let rounds =
        std::env::var("SWITCHBOARD_CRASH_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap()) / share;
    let seed =
        std::env::var("SWITCHBOARD_CRASH_SEED").map_or_else(|_| fastrand::u64(..), |s| s.parse().unwrap());
    println!("{rounds} rounds with SWITCHBOARD_CRASH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let folders = ["inbox", "archive"].map(|section| sandbox.file(section).join("codex"));
    let over = AtomicBool::new(false);
    let mut reported = Vec::new();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&folders, &over));
        for round in 0..rounds {
            let mut sender =
                Running::start(&mut Role::Send.command(sandbox.path(), &format!("sender{round}"), 100_000));
            let mut reader =
                with_acks.then(|| Running::start(&mut Role::Acknowledge.command(sandbox.path(), "codex", 0)));
            // Mostly after a few sends, sometimes during the start.
            let wanted = random.usize(0..8);
            let mut lines = Vec::new();
            while wanted > 0 && lines.iter().filter_map(|line: &String| child_line(line)).count() <= wanted {
                lines.push(sender.line());
            }
            let moment = Instant::now() + Duration::from_micros(random.u64(0..6_000));
            assert!(!sender.lines_until(moment, &mut lines), "it ended by itself: {}", sender.errors());
            sender.kill();
            sender.lines_until(Instant::now() + poll::TIMEOUT, &mut lines);
            if let Some(reader) = &mut reader {
                assert!(reader.is_running(), "it ended by itself: {}", reader.errors());
                reader.kill();
            }
            let ids = lines
                .iter()
                .filter_map(|line| child_line(line))
                .filter(|printed| printed.starts_with("msg_"));
            reported.extend(ids.map(str::to_owned));
        }
        over.store(true, Ordering::Relaxed);
        let watched = watcher.join().unwrap();
        assert!(watched > 0, "nothing was watched");
    });
    println!("{} messages were reported as accepted", reported.len());
    assert!(reported.len() > rounds, "too few sends to mean anything");
    settle(&sandbox);
    check(&sandbox, &reported);
}

/// Reads every message file as soon as it is visible and returns their number; a partial one panics.
fn watch(folders: &[PathBuf; 2], over: &AtomicBool) -> usize {
    let mut read: [HashSet<String>; 2] = Default::default();
    loop {
        let last = over.load(Ordering::Relaxed);
        for (folder, read) in folders.iter().zip(&mut read) {
            for name in files::message_files(folder) {
                if !read.contains(&name) && files::read_json_object(&folder.join(&name)).is_some() {
                    read.insert(name);
                }
            }
        }
        if last {
            return read.iter().map(HashSet::len).sum();
        }
        std::thread::yield_now();
    }
}

/// Opens the workspace and lets it finish the work of the killed processes.
pub(crate) fn settle(sandbox: &Sandbox) {
    let mut serve = sandbox.serve();
    let pending = || {
        let tail = sandbox.json(["tail", "-n", "1000000"]);
        tail.iter()
            .any(|message| matches!(message["state"].as_str(), Some("queued" | "in_flight" | "retrying")))
    };
    poll::until("the remaining messages to be delivered", || (!pending()).then_some(()));
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
}

/// Checks that every reported id is in the journal and in mailbox or archive, and that each message is there once.
pub(crate) fn check(sandbox: &Sandbox, reported: &[String]) {
    let journal = sandbox.json(["tail", "-n", "1000000"]);
    let mut journaled = HashSet::new();
    let mut bodies = HashSet::new();
    for message in &journal {
        let text = |field: &str| message[field].as_str().unwrap().to_owned();
        assert!(journaled.insert(text("native_id")), "{message} is in the journal twice");
        // Notices of the hub have the same text for different messages; on a slow machine they arrive during the test.
        let is_new = text("from") == "switchboard" || bodies.insert((text("from"), text("body")));
        assert!(is_new, "{message} was accepted twice");
    }
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for section in ["inbox", "archive"] {
        let mut agents: Vec<_> =
            std::fs::read_dir(sandbox.file(section)).unwrap().map(|e| e.unwrap().path()).collect();
        agents.sort();
        for folder in agents {
            for name in files::message_files(&folder) {
                let file = files::read_json_object(&folder.join(&name)).unwrap();
                assert_eq!(format!("{}.json", file["id"].as_str().unwrap()), name);
                places.entry(file["id"].as_str().unwrap().to_owned()).or_default().push(section);
            }
        }
    }
    for id in reported {
        assert!(journaled.contains(id), "{id} was reported and is not in the journal");
    }
    for id in &journaled {
        assert_eq!(places.get(id).map(Vec::len), Some(1), "{id}: {:?}", places.get(id));
    }
    for id in places.keys() {
        assert!(journaled.contains(id), "{id} has a file and is not in the journal");
    }
    let doctor = sandbox.run(["doctor"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
}
