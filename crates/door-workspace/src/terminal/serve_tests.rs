use serde_json::json;
use switchboard_core::{Door, Kind};

use super::*;
use crate::config::Config;
use crate::delivery;
use crate::registration::TerminalRegistration;
use crate::terminal::{TerminalConfig, TerminalOutcome};
use crate::test_workspace::{TestWorkspace, agent, name};

fn config(tmux: bool, bridge: bool) -> Config {
    let terminals = TerminalConfig { tmux, bridge, ..TerminalConfig::default() };
    Config { terminals, ..Config::default() }
}

async fn register(test: &TestWorkspace, agent: &str, pane: Option<&str>) {
    let new = TerminalRegistration {
        pane: pane.map(str::to_owned),
        ..TerminalRegistration::new(name(agent), std::process::id(), "coding")
    };
    test.workspace.register_terminal(new).await.unwrap();
}

#[tokio::test]
async fn only_terminals_with_allowed_endpoints_are_served() {
    for (tmux, bridge, expected) in [
        (false, false, &[][..]),
        (true, false, &["paned"][..]),
        (false, true, &["hosted"][..]),
        (true, true, &["hosted", "paned"][..]),
    ] {
        let test = TestWorkspace::with(config(tmux, bridge), &["chat", "gone"]).await;
        register(&test, "paned", Some("%1")).await;
        register(&test, "hosted", None).await;
        register(&test, "gone", None).await;
        test.workspace.set_status(&agent("gone"), OFFLINE, None).await.unwrap();
        let targets = test.workspace.terminal_targets().await.unwrap();
        let names: Vec<String> = targets.iter().map(|target| target.agent.to_string()).collect();
        assert_eq!(names, expected);
        assert!(targets.iter().all(|target| !target.has_exited()));
    }
}

#[test]
fn malformed_record_is_no_target() {
    for record in [json!({ "pane": 7 }), json!({ "pane": "-t" }), json!({ "statusState": "offline" })] {
        assert_eq!(parse_target("codex", record.as_object().unwrap()), None, "{record}");
    }
    assert_eq!(parse_target("../codex", &Map::new()), None);
    let dead = parse_target("codex", json!({ "pid": i32::MAX, "pane": "%1" }).as_object().unwrap()).unwrap();
    assert!(dead.has_exited());
    let other = json!({ "pid": std::process::id(), "processStart": "1", "pane": "%1" });
    assert_eq!(
        parse_target("codex", other.as_object().unwrap()).unwrap().has_exited(),
        cfg!(target_os = "linux")
    );
    let external = json!({ "pid": i32::MAX, "external": true, "pane": "%1" });
    assert!(!parse_target("codex", external.as_object().unwrap()).unwrap().has_exited());
}

#[tokio::test]
async fn input_without_running_terminal_is_unattended() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let run = test.workspace.run_in_terminal(&agent("claude"), &name("Codex"), "x".into()).await.unwrap();
    let TerminalOutcome::Unattended { reason } = &run.outcome else { panic!("{run:?}") };
    assert!(reason.starts_with("no terminal of 'codex' runs"), "{reason}");
    let stored = test.workspace.hub().journal().message(run.id).await.unwrap().unwrap();
    assert_eq!(stored.message.kind, Kind::parse("execute").unwrap());
    let unknown = test.workspace.run_in_terminal(&agent("claude"), &name("codez"), "x".into()).await;
    assert!(unknown.unwrap_err().to_string().contains("codez"));
}

#[tokio::test]
async fn terminal_outcome_is_returned() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let outbound = test.workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
    let delivering = test.workspace.clone();
    tokio::spawn(async move { delivery::run(&delivering, outbound).await });
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let terminal = async {
        for result in [ExecuteResult::Executed, ExecuteResult::Failed { reason: "it hung".into() }] {
            let next = executor.next().await.unwrap();
            assert!(executor.start(&next).await.unwrap());
            executor.finish(&next, result).await.unwrap();
        }
        executor.next().await.unwrap_err()
    };
    let (claude, codex) = (agent("claude"), name("codex"));
    let sender = async {
        let mut outcomes = Vec::new();
        for input in ["one", "two", "///"] {
            let patience = Duration::from_mins(1);
            let run = test.workspace.run_in_terminal_within(&claude, &codex, input.into(), patience).await;
            outcomes.push(run.unwrap().outcome);
        }
        outcomes
    };
    let outcomes = tokio::select! { outcomes = sender => outcomes, error = terminal => panic!("{error}") };
    assert_eq!(
        outcomes[..2],
        [TerminalOutcome::Executed, TerminalOutcome::Failed { reason: "it hung".into() }]
    );
    let TerminalOutcome::Refused { reason } = &outcomes[2] else { panic!("{outcomes:?}") };
    assert!(reason.starts_with("nothing is left to type"), "{reason}");
}

#[tokio::test]
async fn busy_terminal_leaves_message_queued() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let _post = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let (claude, codex) = (agent("claude"), name("codex"));
    let patience = Duration::from_millis(50);
    let run = test.workspace.run_in_terminal_within(&claude, &codex, "x".into(), patience).await.unwrap();
    let TerminalOutcome::Queued { reason } = run.outcome else { panic!("{run:?}") };
    assert!(reason.contains("has not taken it"), "{reason}");
}
