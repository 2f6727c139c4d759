//! Claims among linked hubs.

use serde_json::{Value, json};
use test_support::nats::Release;
use test_support::{RunOutput, Sandbox};

use super::hub::Linked;
use super::server;

fn claim(sandbox: &Sandbox, agent: &str, task: &str) -> RunOutput {
    sandbox.run_as(agent, ["claim", task, "--everywhere", "--json"])
}

#[test]
fn one_hub_wins_over_the_oldest_server() {
    one_wins("one_hub_wins_over_the_oldest_server", Release::Oldest);
}

#[test]
fn one_hub_wins_over_the_newest_server() {
    one_wins("one_hub_wins_over_the_newest_server", Release::Newest);
}

/// Checks that one of several agents in two hubs wins a task, and then the next one.
fn one_wins(test: &str, release: Release) {
    let Some(server) = server(test, release, "") else { return };
    let office = Linked::start("office", &server.url(), &["a1", "a2", "a3"], json!({}));
    let home = Linked::start("home", &server.url(), &["b1", "b2", "b3"], json!({}));
    office.wait_for("b1@home");
    home.wait_for("a1@office");
    for round in 0..5 {
        let task = format!("Task {round}");
        let (here, there) = (&office.sandbox, &home.sandbox);
        let asking = [(here, "a1"), (there, "b1"), (here, "a2"), (there, "b2"), (here, "a3"), (there, "b3")];
        let ran: Vec<(&str, RunOutput)> = std::thread::scope(|scope| {
            let attempts: Vec<_> = asking
                .iter()
                .map(|(hub, agent)| scope.spawn(|| (*agent, claim(hub, agent, &task))))
                .collect();
            attempts.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let winners: Vec<_> = ran.iter().filter(|(_, ran)| ran.code == Some(0)).collect();
        assert_eq!(winners.len(), 1, "{ran:?}");
        assert!(ran.iter().all(|(_, ran)| matches!(ran.code, Some(0 | 3))), "{ran:?}");
        let (winner, won) = winners[0];
        let won: Value = serde_json::from_str(&won.stdout).unwrap();
        let fence = won["fence"].to_string();
        let (own, other) = if winner.starts_with('a') { (&office, &home) } else { (&home, &office) };
        let rival = if winner.starts_with('a') { "b1" } else { "a1" };
        own.sandbox.run_as(winner, ["renew", &task, &fence]).ok();
        assert_eq!(claim(&other.sandbox, rival, &task).code, Some(3));
        own.sandbox.run_as(winner, ["release", &task, &fence]).ok();
        let next: Value = serde_json::from_str(&claim(&other.sandbox, rival, &task).ok()).unwrap();
        assert!(next["fence"].as_i64() > won["fence"].as_i64(), "{won} then {next}");
        let late = own.sandbox.run_as(winner, ["renew", &task, &fence]);
        assert_eq!(late.code, Some(4), "{late:?}");
    }
}

#[test]
fn shared_task_is_refused_without_link() {
    let sandbox = crate::workspace();
    let ran = sandbox.run_as("claude", ["claim", "T", "--everywhere"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("is claimed among linked hubs, and the link is down"), "{ran:?}");
    sandbox.run_as("codex", ["claim", "T"]).ok();
}
