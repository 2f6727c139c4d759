//! `switchboard claim`, `renew` and `release`

use serde_json::json;
use test_support::{RunOutput, Sandbox, poll};

use crate::{BINARY, workspace};

fn claim(sandbox: &Sandbox, agent: &str, args: &[&str]) -> RunOutput {
    sandbox.run_as(agent, [&["claim", "T-1", "--json"], args].concat())
}

#[test]
fn one_of_many_processes_wins() {
    let names: Vec<String> = (0..12).map(|number| format!("agent{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sandbox = Sandbox::with_agents(BINARY, &names);
    for round in 0..5 {
        let task = format!("task {round}");
        let ran: Vec<RunOutput> = std::thread::scope(|scope| {
            let asking: Vec<_> = names
                .iter()
                .map(|name| scope.spawn(|| sandbox.run_as(name, ["claim", &task, "--json"])))
                .collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let winners: Vec<&RunOutput> = ran.iter().filter(|ran| ran.code == Some(0)).collect();
        assert_eq!(winners.len(), 1, "{ran:?}");
        let won: serde_json::Value = serde_json::from_str(&winners[0].stdout).unwrap();
        let holder = won["holder"].as_str().unwrap();
        for lost in ran.iter().filter(|ran| ran.code != Some(0)) {
            assert_eq!(lost.code, Some(3), "{lost:?}");
            assert!(lost.stdout.contains(&format!("is claimed by {holder} until")), "{lost:?}");
        }
    }
    assert_eq!(sandbox.json(["claim"]).len(), 5);
}

#[test]
fn expired_holder_cannot_renew_or_send() {
    let sandbox = workspace();
    assert_eq!(claim(&sandbox, "claude", &["--for", "1s"]).code, Some(0));
    let second = poll::until("the lease to end", || {
        let ran = claim(&sandbox, "codex", &["--for", "1h", "--note", "mine now"]);
        (ran.code == Some(0)).then_some(ran.stdout)
    });
    let second: serde_json::Value = serde_json::from_str(&second).unwrap();
    assert_eq!((&second["fence"], &second["note"]), (&json!(2), &json!("mine now")));
    for args in [
        &["renew", "T-1", "1"][..],
        &["release", "T-1", "1"],
        &["claim", "T-1", "--check", "1"],
        &["send", "codex", "late result", "--claim", "T-1:1"],
    ] {
        let ran = sandbox.run_as("claude", args);
        assert_eq!(ran.code, Some(4), "{args:?}: {ran:?}");
        assert!(
            ran.stderr.contains("claim 1 of the task 'T-1' is not in force: codex holds it now"),
            "{ran:?}"
        );
    }
    for args in [&["claim", "T-1", "--check", "2"][..], &["send", "claude", "result", "--claim", "t-1:2"]] {
        assert_eq!(sandbox.run_as("codex", args).code, Some(0), "{args:?}");
    }
    let ran = claim(&sandbox, "codex", &[]);
    assert!(ran.code == Some(3) && ran.stdout.contains("switchboard renew \\\"T-1\\\" 2"), "{ran:?}");

    let agents = sandbox.json(["agents"]);
    let codex = agents.iter().find(|agent| agent["name"] == "codex").unwrap();
    assert_eq!(codex["claims"], json!(["T-1"]));
    let shown = sandbox.ok(["agents"]);
    assert!(shown.lines().any(|line| line.starts_with("codex") && line.ends_with("has T-1")), "{shown}");
    let tail = sandbox.ok(["tail"]);
    assert!(tail.contains("· claude claimed T-1 (claim 1)  "), "{tail}");
    assert!(tail.contains("· codex claimed T-1 (claim 2)  "), "{tail}");

    assert_eq!(sandbox.run_as("codex", ["release", "T-1", "2"]).code, Some(0));
    assert_eq!(sandbox.ok(["claim"]), "");
}

#[test]
fn malformed_claim_is_a_usage_error() {
    let sandbox = workspace();
    for args in [
        &["claim", " "][..],
        &["claim", "a\nb"],
        &["claim", "T", "--for", "soon"],
        &["claim", "--for", "1h"],
        &["renew", "T"],
        &["send", "codex", "x", "--claim", "T"],
    ] {
        let ran = sandbox.run_as("claude", args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    }
}

#[test]
fn claim_renews_for_its_original_duration() {
    let sandbox = workspace();
    let until = |ran: &RunOutput| {
        let claim: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        claim["until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap()
    };
    let first = until(&claim(&sandbox, "claude", &["--for", "3h"]));
    let renewed = until(&sandbox.run_as("claude", ["renew", "T-1", "1", "--json"]));
    assert!(renewed >= first, "{first} and then {renewed}");
    let ran = sandbox.run_as("claude", ["release", "T-2", "1"]);
    assert!(ran.code == Some(4) && ran.stderr.contains("no agent of this hub has claimed it"), "{ran:?}");
    let ran = sandbox.run_as("cdex", ["claim", "T-3"]);
    assert!(ran.code == Some(5) && ran.stderr.contains("did you mean 'codex'?"), "{ran:?}");
    assert_eq!(sandbox.json(["claim"]).len(), 1);
}

#[test]
fn lease_beyond_a_day_is_refused() {
    let sandbox = workspace();
    sandbox.run_as("codex", ["claim", "T-1"]).ok();
    for args in [
        &["claim", "T-2", "--for", "99d"][..],
        &["renew", "T-1", "1", "--for", "25h"],
        &["reserve", "src/", "--for", "99d"],
    ] {
        let ran = sandbox.run_as("codex", args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(
            ran.stderr.contains("the limit for a claim or reservation is 24 h")
                && ran.stderr.contains("--for 24h"),
            "{ran:?}"
        );
    }
    assert_eq!((sandbox.json(["claim"]).len(), sandbox.json(["reserve"]).len()), (1, 0));
}
