//! The router as a process: driven over its pipes, killed during work, and next to `serve`.

mod claude;
mod legacy_client;
mod network;
mod recovery;
mod schema;
mod verbs;

use std::time::Duration;

use serde_json::{Value, json};
use test_support::{Running, Sandbox};

use crate::workspace;

/// A router on pipes.
struct Router {
    running: Running,
    next: usize,
}

impl Router {
    fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut command = sandbox.command([&["router", "--stdio"], args].concat());
        Self { running: Running::start_with_stdin(&mut command), next: 0 }
    }

    /// Sends a command; returns its id.
    fn send(&mut self, command: &str, payload: &Value) -> String {
        self.next += 1;
        let id = format!("r{}", self.next);
        self.send_as(&id, command, payload);
        id
    }

    fn send_as(&mut self, id: &str, command: &str, payload: &Value) {
        self.running.write_line(&schema::command(id, command, payload)).unwrap();
    }

    fn inject(&mut self, content: &str) -> String {
        self.send("inject", &json!({ "job_id": "j", "node_id": 0, "content": content }))
    }

    fn next(&self) -> Value {
        schema::event(&self.running.line())
    }

    /// Returns the next event of a kind.
    fn next_of(&self, kind: &str) -> Value {
        loop {
            let event = self.next();
            if event["event"] == kind {
                return event;
            }
        }
    }
}

#[test]
fn stdin_end_lets_running_work_finish() {
    let sandbox = workspace();
    let mut router = Router::start(&sandbox, &[]);
    router.send("launch", &json!({ "agent": "echo", "job_id": "j", "echo": { "millis": 100 } }));
    router.running.write_line("[]").unwrap();
    for text in ["one", "two"] {
        router.inject(text);
    }
    router.running.close_stdin();
    let (status, lines) = router.running.wait_for_rest(Duration::from_secs(30));
    assert!(status.success());
    let events: Vec<Value> = lines.iter().map(|line| schema::event(line)).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((of("command_rejected"), of("inject_ack"), of("turn_complete")), (1, 2, 2));
    let answers: Vec<&Value> = events
        .iter()
        .filter(|event| event["event"] == "assistant")
        .map(|event| &event["data"]["content"])
        .collect();
    assert_eq!(answers, ["one", "two"]);
    assert_eq!(events.last().unwrap()["event"], "cut_off");
}

#[test]
fn signal_ends_workers_and_reports_it() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        ends_workers_and_reports_it(signal);
    }
}

fn ends_workers_and_reports_it(signal: rustix::process::Signal) {
    let sandbox = workspace();
    let mut router = Router::start(&sandbox, &[]);
    let program = json!(["sh", "-c", "sleep 1000 & echo $!; wait"]);
    router.send("launch", &json!({ "agent": "command", "job_id": "j", "program": program }));
    router.inject("x");
    let started = router.next_of("assistant_delta");
    let pid: i32 = started["data"]["content"].as_str().unwrap().trim().parse().unwrap();
    router.running.signal(signal);
    let (status, lines) = router.running.wait_for_rest(Duration::from_secs(30));
    assert!(status.success());
    let ends: Vec<Value> = lines
        .iter()
        .map(|line| schema::event(line))
        .filter(|event| event["event"] == "turn_complete")
        .collect();
    assert_eq!((ends.len(), &ends[0]["data"]["status"]), (1, &json!("interrupted")));
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    assert!(rustix::process::test_kill_process(pid).is_err(), "it outlives the router");
}

/// `--wait` marks the answer that it prints as seen, however soon the answer arrived.
#[test]
fn awaited_answer_is_marked_seen() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    sandbox.ok(["worker", "launch", "--agent", "echo", "--name", "parrot"]);
    for number in 0..8 {
        let text = format!("question {number}");
        let output = sandbox.run_as("claude", ["send", "parrot", &text, "--wait", "--timeout", "60s"]).ok();
        assert!(output.contains(&text), "{output}");
        let again = sandbox.run_as("claude", ["wait", "--timeout", "0.05s"]);
        assert_eq!(again.code, Some(3), "{again:?}");
    }
}

#[test]
fn command_line_verbs_drive_serve_router() {
    let sandbox = workspace();
    assert_eq!(sandbox.run(["worker", "list"]).code, Some(3));
    let _serve = sandbox.serve();
    let launched =
        &sandbox.json(["worker", "launch", "--agent", "echo", "--nodes", "2", "--name", "parrot"])[0];
    let job = launched["job_id"].as_str().unwrap().to_owned();
    assert_eq!(sandbox.ok(["worker", "inject", &format!("{job}/1"), "hello", "--wait"]), "hello");
    let both = sandbox.ok(["worker", "inject", &job, "all of you", "--wait"]);
    let mut both: Vec<&str> = both.lines().collect();
    both.sort_unstable();
    assert_eq!(both, ["[0] all of you", "[1] all of you"]);
    let status = &sandbox.json(["worker", "status", &job])[0];
    assert_eq!(status["nodes"][1]["turns"], 2);
    assert!(sandbox.ok(["worker"]).contains("parrot-1"));
    assert_eq!(awareness(&sandbox, "parrot-1").0, "awake");
    // From another door, and the answer to it.
    let sent = sandbox.run_as("claude", ["send", &format!("job:{job}/0"), "what do you think?"]);
    assert!(!sent.stderr.contains("offline"), "{}", sent.stderr);
    sent.ok();
    let answer = sandbox.run_as("claude", ["wait", "--timeout", "60s"]).ok();
    assert!(answer.contains("what do you think?") && answer.contains("parrot-0"), "{answer}");
    sandbox.run_as("claude", ["send", "parrot-1", "by its name"]).ok();
    let answer = sandbox.run_as("claude", ["wait", "--timeout", "60s"]).ok();
    assert!(answer.contains("by its name") && answer.contains("parrot-1"), "{answer}");
    let unknown = sandbox.run(["worker", "inject", "nobody/0", "x"]);
    assert_eq!(unknown.code, Some(5));
    assert!(unknown.stderr.starts_with("error: no job 'nobody'"), "{}", unknown.stderr);
    assert_eq!(sandbox.run(["worker", "interrupt", &job]).code, Some(3));
    assert_eq!(sandbox.run(["worker", "launch", "--agent", "nothing"]).code, Some(2));
    assert!(sandbox.ok(["worker", "terminate", &job]).contains("has ended"));
    let attached = sandbox.ok(["worker", "attach", &job, "--since", "0"]);
    assert!(attached.contains("hello") && attached.contains("the job has ended"), "{attached}");
}

/// Returns the state of an agent in `who`.
fn awareness(sandbox: &Sandbox, agent: &str) -> (String, Option<String>) {
    let row = sandbox.json(["who", agent]).remove(0);
    (row["presence"].as_str().unwrap().to_owned(), row["status"].as_str().map(str::to_owned))
}

#[test]
fn node_is_awake_until_router_is_killed() {
    let sandbox = workspace();
    let mut router = Router::start(&sandbox, &[]);
    router.send("launch", &json!({ "agent": "echo", "job_id": "j", "name": "parrot" }));
    router.next_of("job_launched");
    test_support::poll::until("a node that is awake", || {
        (awareness(&sandbox, "parrot") == ("awake".to_owned(), Some("idle".to_owned()))).then_some(())
    });
    router.running.kill();
    assert_eq!(awareness(&sandbox, "parrot").0, "offline");
}

/// A worker uses the command line as its own agent, and not as the person.
#[test]
fn worker_on_command_line_is_no_person() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let program = "cat > /dev/null; cd /; \"$SWITCHBOARD\" send claude 'from my shell' && \"$SWITCHBOARD\" resume --all; echo $?";
    let binary = format!("SWITCHBOARD={}", crate::BINARY);
    let launch = ["--json", "worker", "launch", "--agent", "command", "--name", "parrot", "--env", &binary];
    let launched = sandbox.ok(launch.into_iter().chain(["--", "sh", "-c", program]));
    let launched: Value = serde_json::from_str(&launched).unwrap();
    let node = format!("{}/0", launched["job_id"].as_str().unwrap());
    let output = sandbox.ok(["worker", "inject", &node, "go", "--wait"]);
    assert_eq!(output.lines().last(), Some("4"), "only a person lets something go on: {output}");
    let mail = sandbox.json(["inbox", "claude"]);
    assert_eq!((&mail[0]["body"], &mail[0]["from"]), (&json!("from my shell"), &json!("parrot")), "{mail:?}");
}
