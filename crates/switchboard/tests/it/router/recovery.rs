//! Killed with SIGKILL: no injection is lost, none runs twice, each ends once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::model::Model;
use test_support::{Sandbox, files, poll, tools};

use super::{Router, schema};
use crate::workspace;

const ROUNDS: usize = 12;

/// State of every injection in the log: how often it was acknowledged, and how it ended.
#[derive(Debug, Default)]
struct Story {
    acks: BTreeMap<String, usize>,
    ends: BTreeMap<String, Vec<String>>,
}

impl Story {
    fn record(&mut self, event: &Value) {
        let id = event["data"]["injection_id"].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap() {
            "inject_ack" => *self.acks.entry(id).or_default() += 1,
            "turn_complete" => {
                let status = event["data"]["status"].as_str().unwrap().to_owned();
                self.ends.entry(id).or_default().push(status);
            }
            _ => {}
        }
    }
}

#[test]
fn killed_router_runs_each_injection_once() {
    let sandbox = workspace();
    let runs = sandbox.path().join("runs");
    let script = format!("read -r line || exit 1; echo \"$line\" >> {}; echo done", runs.display());
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..ROUNDS {
        let mut router = Router::start(&sandbox, &[]);
        if round == 0 {
            router.send(
                "launch",
                &json!({ "agent": "command", "job_id": "j", "program": ["sh", "-c", script] }),
            );
            router.next_of("job_launched");
        }
        router.send("hello", &json!({ "client": "me" }));
        for number in 0..4 {
            let content = format!("{round}-{number}");
            let inject = json!({ "job_id": "j", "node_id": 0, "content": format!("{content}\n") });
            router.send_as(&content, "inject", &inject);
        }
        let mut acked = 0;
        let wanted = random.usize(1..=4);
        while acked < wanted {
            acked += usize::from(router.next()["event"] == "inject_ack");
        }
        let mut rest = Vec::new();
        let moment = Instant::now() + Duration::from_micros(random.u64(0..30_000));
        router.running.lines_until(moment, &mut rest);
        router.running.kill();
    }
    let mut router = Router::start(&sandbox, &[]);
    router.send("subscribe", &json!({ "from_seq": 0 }));
    let mut story = Story::default();
    let mut seqs = BTreeSet::new();
    let until = Instant::now() + poll::TIMEOUT;
    while story.acks.is_empty() || story.ends.len() < story.acks.len() {
        assert!(Instant::now() < until, "{story:?}");
        let event = router.next();
        if event["event"] == "subscribed" {
            // Earlier events belong to no subscription: on stdin and stdout, events start without one.
            (story, seqs) = (Story::default(), BTreeSet::new());
        }
        if event["event"] == "subscribed" || event["event"] == "heartbeat" {
            continue;
        }
        assert!(seqs.insert(event["seq"].as_u64().unwrap()), "twice: {event}");
        story.record(&event);
    }
    // Every injection in the journal has been resumed by now.
    router.running.close_stdin();
    let (_, lines) = router.running.wait_for_rest(Duration::from_secs(30));
    for line in &lines {
        story.record(&schema::event(line));
    }
    assert!(story.acks.values().all(|count| *count == 1), "{story:?}");
    assert!(story.ends.values().all(|ends| ends.len() == 1), "{story:?}");
    assert!(story.acks.len() >= ROUNDS, "{story:?}");
    assert_eq!(story.acks.keys().collect::<Vec<_>>(), story.ends.keys().collect::<Vec<_>>());
    let text = std::fs::read_to_string(&runs).unwrap();
    let ran: Vec<&str> = text.lines().collect();
    let once: BTreeSet<&str> = ran.iter().copied().collect();
    assert_eq!(ran.len(), once.len(), "a prompt was given twice: {ran:?}");
    let completed = story.ends.values().filter(|ends| ends[0] == "completed").count();
    assert!(ran.len() >= completed, "{} of {completed}", ran.len());
}

/// Some injections are in the node's queue then, some in flight, and some wait in the journal.
#[test]
fn interrupted_flood_resumes_in_order() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let sandbox = workspace();
        let mut router = Router::start(&sandbox, &[]);
        router.send("launch", &json!({ "agent": "echo", "job_id": "j", "echo": { "millis": 1 } }));
        for number in 0..1_500 {
            router.inject(&number.to_string());
        }
        router.next_of("turn_complete");
        router.running.signal(signal);
        router.running.wait_for_rest(poll::TIMEOUT);
        let mut router = Router::start(&sandbox, &[]);
        router.send("subscribe", &json!({ "from_seq": 0 }));
        router.next_of("subscribed");
        router.running.close_stdin();
        let (_, lines) = router.running.wait_for_rest(poll::TIMEOUT);
        let (mut story, mut answers) = (Story::default(), Vec::new());
        for event in lines.iter().map(|line| schema::event(line)) {
            story.record(&event);
            if event["event"] == "assistant" {
                answers.push(event["data"]["content"].as_str().unwrap().parse::<u32>().unwrap());
            }
        }
        assert!(answers.is_sorted(), "{answers:?}");
        assert!(answers.len() > 100 && story.acks.len() == story.ends.len(), "{}", answers.len());
        assert!(story.ends.values().all(|ends| ends.len() == 1), "{story:?}");
    }
}

/// Starts a router with the real Codex as job `j`; `None` if that is not installed.
fn with_codex(test: &str, sandbox: &Sandbox, model: &Model) -> Option<Router> {
    let program = match tools::installed("npm/@openai/codex") {
        Ok(folder) => folder.join("node_modules/.bin/codex"),
        Err(reason) => {
            tools::skip(test, &reason);
            return None;
        }
    };
    let home = sandbox.path().join("codex-home");
    std::fs::create_dir_all(&home).unwrap();
    let mut router = Router::start(sandbox, &[]);
    router.send(
        "launch",
        &json!({
            "agent": "codex", "job_id": "j", "program": [program], "args": model.codex_args(),
            "env": { "CODEX_HOME": home }, "approval_policy": "untrusted", "sandbox": "danger-full-access",
        }),
    );
    Some(router)
}

#[test]
fn codex_reports_received_input_after_kill() {
    let (sandbox, model) = (workspace(), Model::start());
    let test = "codex_reports_received_input_after_kill";
    let Some(mut router) = with_codex(test, &sandbox, &model) else { return };
    router.inject("SAY before");
    assert_eq!(router.next_of("turn_complete")["data"]["status"], "completed");
    router.inject("HANG");
    router.inject("SAY after");
    router.next_of("turn_started");
    poll::until("the model to be asked", || (model.hanging() > 0).then_some(()));
    router.running.kill();
    let router = Router::start(&sandbox, &[]);
    let lost = router.next_of("turn_complete");
    assert_eq!(lost["data"]["status"], "worker_lost");
    let answer = router.next_of("assistant");
    assert_eq!(answer["data"]["content"], "after");
    assert_eq!(router.next_of("turn_complete")["data"]["status"], "completed");
    assert_eq!(model.prompts().iter().filter(|prompt| *prompt == "HANG").count(), 1);
}

#[test]
fn unanswered_question_expires_once_after_kill() {
    let (sandbox, model) = (workspace(), Model::start());
    let test = "unanswered_question_expires_once_after_kill";
    let Some(mut router) = with_codex(test, &sandbox, &model) else { return };
    router.inject("RUN touch made");
    let approval_request = router.next_of("approval_required");
    router.running.kill();
    for _ in 0..2 {
        let mut router = Router::start(&sandbox, &[]);
        router.send("subscribe", &json!({ "from_seq": 0 }));
        router.next_of("subscribed");
        let over = router.next_of("approval_resolved");
        assert_eq!(over["data"]["approval_id"], approval_request["data"]["approval_id"]);
        assert_eq!((&over["data"]["decision"], &over["data"]["by"]), (&json!("cancel"), &json!("turn")));
        assert_eq!(router.next_of("turn_complete")["data"]["status"], "worker_lost");
        router.send("approvals_list", &json!({}));
        // Nothing is reported twice, also not by the router after this one.
        let listed = loop {
            let event = router.next();
            assert_ne!(event["event"], "approval_resolved", "{event}");
            if event["event"] == "approvals_list" {
                break event;
            }
        };
        assert_eq!(listed["data"]["approvals"], json!([]));
        router.running.kill();
    }
    assert!(!sandbox.path().join("made").exists());
}

#[test]
fn killed_router_leaves_no_worker() {
    let sandbox = workspace();
    let pids = sandbox.path().join("pids");
    let script =
        format!("trap '' TERM HUP; echo $$ >> {0}; sleep 1000 & echo $! >> {0}; wait", pids.display());
    let mut router = Router::start(&sandbox, &[]);
    router.send("launch", &json!({ "agent": "command", "job_id": "j", "program": ["sh", "-c", script] }));
    router.inject("x");
    let numbers = poll::until("the worker to start", || {
        let text = std::fs::read_to_string(&pids).unwrap_or_default();
        let numbers: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (numbers.len() == 2).then_some(numbers)
    });
    router.running.kill();
    poll::until("the end of the workers", || {
        let is_alive = |pid: &i32| {
            let pid = rustix::process::Pid::from_raw(*pid).unwrap();
            rustix::process::test_kill_process(pid).is_ok()
        };
        (!numbers.iter().any(is_alive)).then_some(())
    });
}

#[test]
fn damaged_log_does_not_stop_router() {
    let sandbox = workspace();
    files::put(sandbox.file("router/events-00000000000000000001.ndjson"), "not an event\n");
    let mut router = Router::start(&sandbox, &[]);
    router.send("hello", &json!({}));
    assert_eq!(router.next_of("hello")["data"]["server"], "switchboard");
}
