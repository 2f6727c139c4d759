//! The real agents with a scripted model on this machine.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::model::{Model, codex_args};
use test_support::tools;

use crate::client::Received;
use crate::config::Config;
use crate::test_router::{Rig, TIMEOUT, TestClient, names};

/// Returns the program with a home folder of its own; `None`, with a printed reason, if it is not installed.
fn codex(test: &str) -> Option<String> {
    match tools::installed("npm/@openai/codex") {
        Ok(folder) => Some(folder.join("node_modules/.bin/codex").display().to_string()),
        Err(reason) => {
            tools::skip(test, &reason);
            None
        }
    }
}

struct Bench {
    rig: Rig,
    model: Model,
    client: TestClient,
    job: String,
    home: tempfile::TempDir,
}

async fn bench(program: String, agent: &str, more: Value) -> Bench {
    let (rig, model, home) = (Rig::new().await, Model::start(), tempfile::TempDir::new().unwrap());
    let mut client = rig.client();
    let mut launch = json!({
        "agent": agent, "program": [program], "args": model.codex_args(),
        "env": { "CODEX_HOME": home.path() },
    });
    for (key, value) in more.as_object().unwrap() {
        launch[key] = value.clone();
    }
    let job = client.launch(launch).await;
    Bench { rig, model, client, job, home }
}

fn answer(events: &[Received]) -> &Value {
    let found = events.iter().find(|event| event.event == "assistant");
    &found.unwrap_or_else(|| panic!("no answer, but {:?}", events.last())).data["content"]
}

/// Waits until the model has received a request that it does not answer.
async fn hangs(model: &Model) {
    let requested = async {
        while model.hanging() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, requested).await.expect("a request");
}

fn end(events: &[Received]) -> (&Value, &Value) {
    let end = events.last().unwrap();
    (&end.data["status"], &end.data["error"])
}

#[tokio::test]
async fn codex_streams_answer_and_reports_tokens() {
    let Some(program) = codex("codex_answers_in_pieces_and_says_what_it_used") else { return };
    let mut bench = bench(program, "codex", json!({})).await;
    // The second waits for the first: each has its own answer and token usage.
    bench.client.inject(&bench.job, 0, "SAY hello there").await;
    bench.client.inject(&bench.job, 0, "SAY second one").await;
    for expected in ["hello there", "second one"] {
        let events = bench.client.until_complete(None).await;
        assert_eq!(answer(&events), expected);
        let named = names(&events);
        let order =
            ["inject_delivered", "turn_started", "assistant_delta", "assistant", "usage", "turn_complete"];
        let places: Vec<_> = order.iter().map(|name| named.iter().position(|other| other == name)).collect();
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{named:?}");
        let usage = events.iter().find(|event| event.event == "usage").unwrap();
        assert_eq!((&usage.data["total_tokens"], &usage.data["output_tokens"]), (&json!(15), &json!(5)));
        assert_eq!(end(&events).0, "completed");
    }
    bench.rig.close().await;
}

#[tokio::test]
async fn codex_requests_approval_for_command() {
    let Some(program) = codex("codex_asks_before_it_runs_a_command_r16") else { return };
    let policy = json!({ "approval_policy": "untrusted", "sandbox": "danger-full-access" });
    let mut bench = bench(program, "codex", policy).await;
    for (decision, status) in [("accept", "completed"), ("decline", "declined")] {
        let marker = bench.home.path().join(format!("made-{decision}"));
        bench.client.inject(&bench.job, 0, &format!("RUN touch {}", marker.display())).await;
        let approval_request = bench.client.next_of("approval_required").await;
        assert!(
            approval_request.data["command"].as_str().unwrap().contains("touch"),
            "{}",
            approval_request.data
        );
        let waiting = bench.client.request("approvals_list", json!({})).await;
        assert_eq!(waiting.data["approvals"].as_array().unwrap().len(), 1);
        let approve = json!({ "approval_id": approval_request.data["approval_id"], "decision": decision });
        assert_eq!(bench.client.request("approve", approve.clone()).await.event, "approval_resolved");
        assert_eq!(bench.client.rejected("approve", approve).await, "unknown_approval");
        let events = bench.client.until_complete(None).await;
        let completed = events.iter().find(|event| event.event == "command_completed").unwrap();
        assert_eq!(completed.data["status"], status);
        assert_eq!((answer(&events), end(&events).0), (&json!("ran"), &json!("completed")));
        assert_eq!(marker.exists(), decision == "accept");
    }
    bench.rig.close().await;
}

#[tokio::test]
async fn codex_requests_approval_for_file_change() {
    let Some(program) = codex("codex_shows_what_it_would_change_before_it_does") else { return };
    let policy = json!({ "approval_policy": "untrusted", "sandbox": "read-only" });
    let mut bench = bench(program, "codex", policy).await;
    bench.client.inject(&bench.job, 0, "WRITE new.txt").await;
    let approval_request = bench.client.next_of("approval_required").await;
    assert_eq!(approval_request.data["kind"], "file_change", "{}", approval_request.data);
    let change = &approval_request.data["changes"][0];
    assert!(change["path"].as_str().unwrap().ends_with("new.txt") && change["kind"] == "add", "{change}");
    assert!(change["diff"].as_str().unwrap().contains("hello"));
    let approve = json!({ "approval_id": approval_request.data["approval_id"], "decision": "accept" });
    bench.client.request("approve", approve).await;
    let events = bench.client.until_complete(None).await;
    assert_eq!(answer(&events), "wrote");
    let text = std::fs::read_to_string(bench.rig.folder.path().join("new.txt")).unwrap();
    assert_eq!(text, "hello\n");
    bench.rig.close().await;
}

#[tokio::test]
async fn codex_accepts_steering_within_turn() {
    let Some(program) = codex("codex_takes_what_is_added_to_its_turn_and_ends_it_once") else { return };
    let mut bench = bench(program, "codex", json!({})).await;
    bench.client.inject(&bench.job, 0, "HANG").await;
    let turn = bench.client.next_of("turn_started").await;
    hangs(&bench.model).await;
    let steer = json!({ "job_id": bench.job, "node_id": 0, "content": "SAY added" });
    let steered = bench.client.request("steer", steer).await;
    assert_eq!((&*steered.event, &steered.data["injection_id"]), ("steer_ack", &turn.data["injection_id"]));
    let events = bench.client.until_complete(None).await;
    assert_eq!((answer(&events), end(&events).0), (&json!("added"), &json!("completed")));
    bench.rig.close().await;
}

#[tokio::test]
async fn codex_continues_after_interrupt() {
    let Some(program) = codex("codex_can_be_interrupted_and_goes_on") else { return };
    let mut bench = bench(program, "codex", json!({})).await;
    bench.client.inject(&bench.job, 0, "HANG").await;
    bench.client.inject(&bench.job, 0, "SAY after").await;
    bench.client.next_of("turn_started").await;
    bench.client.request("interrupt", json!({ "job_id": bench.job, "node_id": 0 })).await;
    assert_eq!(end(&bench.client.until_complete(None).await).0, "interrupted");
    let events = bench.client.until_complete(None).await;
    assert_eq!((answer(&events), end(&events).0), (&json!("after"), &json!("completed")));
    bench.rig.close().await;
}

#[tokio::test]
async fn codex_model_failure_fails_turn() {
    let Some(program) = codex("a_model_that_fails_fails_the_turn_and_one_that_is_not_there_times_out") else {
        return;
    };
    let mut bench = bench(program.clone(), "codex", json!({})).await;
    bench.client.inject(&bench.job, 0, "BREAK").await;
    let events = bench.client.until_complete(None).await;
    assert_eq!(end(&events).0, "failed", "{:?}", end(&events));
    assert!(names(&events).contains(&"agent_error"));
    // No process listens on the port of a stopped model.
    let nowhere = Model::start().url();
    let launch = json!({
        "agent": "codex", "program": [program], "args": codex_args(&nowhere),
        "env": { "CODEX_HOME": bench.home.path() }, "limits": { "turn_seconds": 3 },
    });
    let job = bench.client.launch(launch).await;
    bench.client.inject(&job, 0, "SAY anything").await;
    let events = bench.client.until_complete(None).await;
    assert_eq!(end(&events).0, "timeout", "{:?}", end(&events));
    bench.rig.close().await;
}

#[tokio::test]
async fn codex_resumes_conversation_after_kill() {
    let Some(program) =
        codex("r7_codex_killed_in_a_turn_is_lost_and_the_next_one_goes_on_with_the_conversation")
    else {
        return;
    };
    let mut bench = bench(program, "codex", json!({})).await;
    bench.client.inject(&bench.job, 0, "SAY first").await;
    bench.client.until_complete(None).await;
    bench.client.inject(&bench.job, 0, "HANG").await;
    bench.client.inject(&bench.job, 0, "SAY third").await;
    bench.client.next_of("turn_started").await;
    hangs(&bench.model).await;
    let status = bench.client.request("job_status", json!({ "job_id": bench.job })).await;
    let pid = status.data["nodes"][0]["pid"].as_i64().unwrap();
    let group = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    let events = bench.client.until_complete(None).await;
    assert_eq!(end(&events).0, "worker_lost");
    assert!(names(&events).iter().all(|name| *name != "inject_failed"));
    let events = bench.client.until_complete(None).await;
    assert_eq!((answer(&events), end(&events).0), (&json!("third"), &json!("completed")));
    assert_eq!(bench.model.prompts().iter().filter(|prompt| *prompt == "HANG").count(), 1);
    bench.rig.close().await;
}

#[tokio::test]
async fn codex_exec_resumes_conversation_per_turn() {
    let Some(program) = codex("codex_exec_runs_a_process_a_turn_and_keeps_the_conversation") else { return };
    let mut bench = bench(program, "codex-exec", json!({})).await;
    for text in ["one", "two"] {
        bench.client.inject(&bench.job, 0, &format!("SAY {text}")).await;
        let events = bench.client.until_complete(None).await;
        assert_eq!(
            (answer(&events), end(&events).0),
            (&json!(text), &json!("completed")),
            "{:?}",
            end(&events)
        );
        let usage = events.iter().find(|event| event.event == "usage").unwrap();
        assert_eq!(usage.data["total_tokens"], 15);
    }
    bench.client.inject(&bench.job, 0, "BREAK").await;
    assert_eq!(end(&bench.client.until_complete(None).await).0, "failed");
    bench.rig.close().await;
}

#[tokio::test]
async fn acp_agent_answers_and_requests_approval() {
    let test = "an_agent_of_the_agent_client_protocol_answers_and_asks";
    let (adapter, node) = match (tools::installed("npm/@agentclientprotocol/codex-acp"), tools::node()) {
        (Ok(adapter), Ok(node)) => (adapter.join("node_modules/.bin/codex-acp"), node),
        (Err(reason), _) | (_, Err(reason)) => return tools::skip(test, &reason),
    };
    let (rig, model, home) = (
        Rig::with(Config { restart: Duration::from_millis(50), ..Config::default() }).await,
        Model::start(),
        tempfile::TempDir::new().unwrap(),
    );
    let settings = format!(
        "model = \"gpt-5.4\"\nmodel_provider = \"stub\"\napproval_policy = \"on-request\"\nsandbox_mode = \"read-only\"\n[model_providers.stub]\nname = \"Stub\"\nbase_url = \"{}\"\nwire_api = \"responses\"\n[features]\nplugins = false\n",
        model.url()
    );
    test_support::files::put(home.path().join("config.toml"), settings);
    let mut client = rig.client();
    let job = client
        .launch(json!({
            "agent": "acp", "program": [node, adapter], "approval_policy": "read-only",
            "env": { "CODEX_HOME": home.path(), "CODEX_API_KEY": "none", "NO_BROWSER": "1" },
        }))
        .await;
    client.inject(&job, 0, "SAY hello there").await;
    let events = client.until_complete(None).await;
    // The adapter prepends warnings of Codex to answers.
    assert!(answer(&events).as_str().unwrap().ends_with("hello there"), "{}", answer(&events));
    assert_eq!(end(&events).0, "completed");
    client.inject(&job, 0, "HANG").await;
    client.inject(&job, 0, "SAY after").await;
    hangs(&model).await;
    client.request("interrupt", json!({ "job_id": job, "node_id": 0 })).await;
    assert_eq!(end(&client.until_complete(None).await).0, "interrupted");
    assert!(answer(&client.until_complete(None).await).as_str().unwrap().ends_with("after"));
    client.inject(&job, 0, "WRITE made.txt").await;
    let approval_request = client.next_of("approval_required").await;
    let approve = json!({ "approval_id": approval_request.data["approval_id"], "decision": "accept" });
    client.request("approve", approve).await;
    assert!(answer(&client.until_complete(None).await).as_str().unwrap().ends_with("wrote"));
    assert!(rig.folder.path().join("made.txt").exists());
    rig.close().await;
}
