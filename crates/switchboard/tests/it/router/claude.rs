//! The real Claude Code as a worker, with a local model.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use test_support::model::Model;
use test_support::{Sandbox, claude, files, poll, tools};

use super::Router;
use crate::workspace;

/// Returns a background command that ends once this file exists.
fn until_there(file: &Path) -> String {
    format!("BACKGROUND until [ -e {} ]; do sleep 0.02; done", file.display())
}

/// A job of Claude Code in a router on pipes.
struct Bench {
    sandbox: Sandbox,
    model: Model,
    router: Router,
}

impl Bench {
    /// Starts it; prints why and returns `None` if Claude Code is not installed.
    fn start(test: &str, approvals: &str) -> Option<Self> {
        let program = match claude::program() {
            Ok(program) => program,
            Err(reason) => {
                tools::skip(test, &reason);
                return None;
            }
        };
        let (sandbox, model) = (workspace(), Model::start());
        claude::prepare_home(sandbox.home(), sandbox.path());
        let env: serde_json::Map<String, Value> = claude::environment(&model, sandbox.home())
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let mut router = Router::start(&sandbox, &[]);
        let launch = json!({
            "agent": "claude", "job_id": "j", "program": [program], "env": env, "approvals": approvals,
            "approval_policy": "default",
        });
        router.send("launch", &launch);
        Some(Self { sandbox, model, router })
    }

    /// Returns events up to the next end of an injection.
    fn until_complete(&self) -> Vec<Value> {
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &Value| event["event"] != "turn_complete") {
            events.push(self.router.next());
        }
        events
    }

    /// Returns status and answer of the next injection that ends.
    fn answer(&self) -> (String, Option<String>) {
        let events = self.until_complete();
        let status = events.last().unwrap()["data"]["status"].as_str().unwrap().to_owned();
        let answers = events.iter().filter(|event| event["event"] == "assistant");
        let answers: Vec<&str> = answers.map(|event| event["data"]["content"].as_str().unwrap()).collect();
        assert!(answers.len() <= 1, "{answers:?}");
        (status, answers.first().map(|answer| (*answer).to_owned()))
    }

    fn answered(&self, text: &str) {
        assert_eq!(self.answer(), ("completed".to_owned(), Some(text.to_owned())));
    }

    /// Answers the next approval request; returns the request.
    fn decide(&mut self, decision: &str) -> Value {
        let approval_request = self.router.next_of("approval_required")["data"].clone();
        let approve = json!({ "approval_id": approval_request["approval_id"], "decision": decision });
        self.router.send("approve", &approve);
        approval_request
    }
}

#[test]
fn claude_own_turn_answers_no_injection() {
    let Some(mut bench) = Bench::start("claude_own_turn_answers_no_injection", "allow") else { return };
    let go = bench.sandbox.path().join("go");
    let started = format!("{}\nAFTERWARDS HOLD said by itself\nSAY started", until_there(&go));
    bench.router.inject(&started);
    bench.answered("started");
    files::put(&go, "");
    let own = bench.router.next_of("own_turn_started");
    poll::until("its own turn to wait", || (bench.model.held_answers() == 1).then_some(()));
    bench.router.inject("SAY second answer");
    bench.router.next_of("inject_ack");
    bench.model.release();
    let ended = bench.router.next_of("own_turn_complete");
    assert_eq!(ended["data"]["injection_id"], own["data"]["injection_id"]);
    assert_eq!(
        (&ended["data"]["content"], &ended["data"]["usage"]["total_tokens"]),
        (&json!("said by itself"), &json!(15))
    );
    let events = bench.until_complete();
    let of = |kind: &str| events.iter().find(|event| event["event"] == kind).unwrap()["data"].clone();
    assert_eq!(of("assistant")["content"], "second answer");
    assert_eq!(of("usage")["total_tokens"], 15, "one request, and not those of its own turn");
}

#[test]
fn claude_own_turn_prompts_separately() {
    let Some(mut bench) = Bench::start("claude_own_turn_prompts_separately", "ask") else { return };
    let (go, made) = (bench.sandbox.path().join("go"), bench.sandbox.path().join("made"));
    bench.router.inject(&format!(
        "{}\nAFTERWARDS RUN touch {}\nSAY started",
        until_there(&go),
        made.display()
    ));
    // Claude Code treats a loop that only reads and sleeps as harmless, and does not ask.
    bench.answered("started");
    files::put(&go, "");
    bench.router.next_of("own_turn_started");
    bench.router.inject("SAY later");
    let approval = bench.decide("accept");
    assert!(approval["injection_id"].as_str().unwrap().starts_with("own_"), "{approval}");
    assert_eq!(bench.router.next_of("own_turn_complete")["data"]["content"], "ran");
    assert!(made.exists());
    bench.answered("later");
}

#[test]
fn claude_prompts_stops_and_resumes() {
    let Some(mut bench) = Bench::start("claude_prompts_stops_and_resumes", "ask") else { return };
    for decision in ["accept", "decline"] {
        let made = bench.sandbox.path().join(decision);
        bench.router.inject(&format!("RUN touch {}", made.display()));
        let approval = bench.decide(decision);
        assert_eq!(approval["command"], format!("touch {}", made.display()));
        bench.answered("ran");
        assert_eq!(made.exists(), decision == "accept");
    }
    bench.router.inject("HANG");
    poll::until("the model to hang", || (bench.model.hanging() == 1).then_some(()));
    bench.router.send("interrupt", &json!({ "job_id": "j", "node_id": 0 }));
    assert_eq!(bench.answer().0, "interrupted");
    bench.router.inject("HANG");
    poll::until("the model to hang", || (bench.model.hanging() == 1).then_some(()));
    bench.router.send("job_status", &json!({ "job_id": "j" }));
    let status = bench.router.next_of("job_status");
    let pid = status["data"]["nodes"][0]["pid"].as_i64().unwrap();
    kill_process_group(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(bench.answer().0, "worker_lost");
    bench.router.inject("SAY once more");
    bench.answered("once more");
    let whole = bench.model.requests().last().unwrap().to_string();
    assert!(whole.contains("/accept") && whole.contains("/decline"), "it has the conversation: {whole}");
}

#[test]
fn claude_answers_each_sender() {
    let program = match claude::program() {
        Ok(program) => program.display().to_string(),
        Err(reason) => return tools::skip("claude_answers_each_sender", &reason),
    };
    let (sandbox, model) = (workspace(), Model::start());
    claude::prepare_home(sandbox.home(), sandbox.path());
    let _serve = sandbox.serve();
    let mut launch: Vec<String> =
        ["worker", "launch", "--agent", "claude", "--name", "deep", "--approvals", "allow"]
            .map(str::to_owned)
            .to_vec();
    for (name, value) in claude::environment(&model, sandbox.home()) {
        launch.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    launch.extend(["--".to_owned(), program]);
    sandbox.ok(&launch);
    let go = sandbox.path().join("go");
    let wait = |agent: &str| sandbox.run_as(agent, ["wait", "--timeout", "60s"]).ok();
    let text = format!("{}\nAFTERWARDS HOLD nobody asked for this\nSAY for codex", until_there(&go));
    sandbox.send("codex", "deep", &text);
    assert!(wait("codex").contains("for codex"));
    files::put(&go, "");
    poll::until("its own turn to wait", || (model.held_answers() == 1).then_some(()));
    sandbox.send("claude", "deep", "SAY for claude");
    model.release();
    let answer = wait("claude");
    assert!(answer.contains("for claude") && !answer.contains("nobody asked"), "{answer}");
    for agent in ["codex", "claude"] {
        let more = sandbox.run_as(agent, ["wait", "--timeout", "0.05s"]);
        assert_eq!(more.code, Some(3), "{agent}: {more:?}");
    }
}
