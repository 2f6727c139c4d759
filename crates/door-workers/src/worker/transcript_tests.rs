//! Recorded transcripts of the real Codex, replayed without it.
//!
//! `RECORD_TRANSCRIPTS=1` makes the first test record them again with the installed program.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_support::model::Model;
use test_support::{files, tools};

use crate::test_router::{Rig, names};

struct Scenario {
    name: &'static str,
    prompts: &'static [&'static str],
    /// Decisions on the questions, in order.
    decisions: &'static [&'static str],
    settings: fn() -> Value,
    /// For each prompt: the events except deltas, the answer, and the status.
    turns: &'static [(&'static [&'static str], Option<&'static str>, &'static str)],
}

const SAID: &[&str] = &["inject_delivered", "turn_started", "assistant", "usage", "turn_complete"];
const RUN: &[&str] = &[
    "inject_delivered",
    "turn_started",
    "command_started",
    "approval_required",
    "approval_resolved",
    "command_completed",
    "assistant",
    "usage",
    "turn_complete",
];

const CHANGED: &[&str] = &[
    "inject_delivered",
    "turn_started",
    "file_change",
    "approval_required",
    "approval_resolved",
    "file_change",
    "assistant",
    "usage",
    "turn_complete",
];
const STOPPED: &[&str] = &["inject_delivered", "turn_started", "interrupt_ack", "turn_complete"];
const FAILED: &[&str] = &["inject_delivered", "turn_started", "agent_error", "turn_complete"];

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "two_prompts",
        prompts: &["SAY hello there", "SAY second one"],
        decisions: &[],
        settings: || json!({}),
        turns: &[(SAID, Some("hello there"), "completed"), (SAID, Some("second one"), "completed")],
    },
    Scenario {
        name: "commands",
        prompts: &["RUN touch made", "RUN touch made"],
        decisions: &["accept", "decline"],
        settings: || json!({ "approval_policy": "untrusted", "sandbox": "danger-full-access" }),
        turns: &[(RUN, Some("ran"), "completed"), (RUN, Some("ran"), "completed")],
    },
    Scenario {
        name: "file_change",
        prompts: &["WRITE new.txt"],
        decisions: &["accept"],
        settings: || json!({ "approval_policy": "untrusted", "sandbox": "read-only" }),
        turns: &[(CHANGED, Some("wrote"), "completed")],
    },
    Scenario {
        name: "interrupted",
        prompts: &["HANG", "SAY after"],
        decisions: &[],
        settings: || json!({}),
        turns: &[(STOPPED, None, "interrupted"), (SAID, Some("after"), "completed")],
    },
    Scenario {
        name: "broken",
        prompts: &["BREAK"],
        decisions: &[],
        settings: || json!({}),
        turns: &[(FAILED, None, "failed")],
    },
];

/// Runs a scenario with a program, and compares the events with the expected ones.
async fn run(scenario: &Scenario, rig: Rig, launch: Value) {
    let mut client = rig.client();
    let job = client.launch(launch).await;
    for prompt in scenario.prompts {
        client.inject(&job, 0, prompt).await;
    }
    let mut decisions = scenario.decisions.iter();
    for (place, expected) in scenario.turns.iter().enumerate() {
        let mut events = Vec::new();
        let is_over = |event: &str| event == "turn_complete";
        while !events.last().is_some_and(|event: &crate::client::Received| is_over(&event.event)) {
            let event = client.next().await;
            if event.event == "approval_required" {
                let decision = decisions.next().expect("an answer to every question");
                let approve = json!({ "approval_id": event.data["approval_id"], "decision": decision });
                client.send("approve", approve).await;
            }
            if event.event == "turn_started" && scenario.prompts[place] == "HANG" {
                client.send("interrupt", json!({ "job_id": job, "node_id": 0 })).await;
            }
            events.push(event);
        }
        let text = |event: &str, field: &str| {
            let event = events.iter().find(|other| other.event == event)?;
            event.data[field].as_str().map(str::to_owned)
        };
        let is_told = |name: &&str| !matches!(*name, "inject_ack" | "assistant_delta");
        let events_told: Vec<&str> = names(&events).into_iter().filter(is_told).collect();
        let what = format!("{}, prompt {}", scenario.name, place + 1);
        assert_eq!(events_told, expected.0, "{what}");
        assert_eq!(text("assistant", "content").as_deref(), expected.1, "{what}");
        assert_eq!(text("turn_complete", "status").as_deref(), Some(expected.2), "{what}");
    }
    rig.close().await;
}

fn transcript(scenario: &Scenario) -> PathBuf {
    let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/codex"));
    fixtures.join(format!("{}.ndjson", scenario.name))
}

fn player(mode: &str, path: &Path) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../test-support/src/transcript.py");
    ["python3", script, mode].into_iter().map(str::to_owned).chain([path.display().to_string()]).collect()
}

fn with(mut launch: Value, more: Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        launch[key] = value.clone();
    }
    launch
}

#[tokio::test]
async fn codex_matches_transcripts() {
    let codex = match tools::installed("npm/@openai/codex") {
        Ok(folder) => folder.join("node_modules/.bin/codex").display().to_string(),
        Err(reason) => return tools::skip("codex_does_what_the_transcripts_say", &reason),
    };
    let is_recorded = std::env::var_os("RECORD_TRANSCRIPTS").is_some();
    for scenario in SCENARIOS {
        let (rig, model, home) = (Rig::new().await, Model::start(), tempfile::TempDir::new().unwrap());
        let raw = home.path().join("transcript");
        let mut program = if is_recorded { player("record", &raw) } else { Vec::new() };
        program.push(codex.clone());
        let launch = json!({
            "agent": "codex", "program": program, "args": model.codex_args(), "env": { "CODEX_HOME": home.path() },
        });
        let folders = [(rig.folder.path().to_owned(), "/workspace"), (home.path().to_owned(), "/codex")];
        run(scenario, rig, with(launch, (scenario.settings)())).await;
        if is_recorded {
            let mut said = std::fs::read_to_string(&raw).unwrap();
            for (folder, name) in folders {
                said = said.replace(folder.to_str().unwrap(), name);
            }
            files::put(transcript(scenario), said);
        }
    }
}

#[tokio::test]
async fn transcripts_replay_without_codex() {
    for scenario in SCENARIOS {
        let launch = json!({ "agent": "codex", "program": player("replay", &transcript(scenario)) });
        run(scenario, Rig::new().await, with(launch, (scenario.settings)())).await;
    }
}
