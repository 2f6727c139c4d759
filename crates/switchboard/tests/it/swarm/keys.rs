//! A key file that other users can read, and one in a folder that is shared.

use test_support::{Sandbox, files};

use crate::BINARY;

/// Returns the swarm section of `doctor`.
fn swarm_section(sandbox: &Sandbox) -> Vec<(String, String, String)> {
    let mut command = sandbox.command(["doctor", "--json"]);
    let ran = test_support::RunOutput::of(&mut command);
    let text = |check: &serde_json::Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    ran.stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|check| check["check"] == "swarm")
        .map(|check| (text(&check, "status"), text(&check, "message"), text(&check, "hint")))
        .collect()
}

fn owner() -> Sandbox {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    sandbox.ok(["swarm", "init", "--agent", "alice", "--endpoint", "https://alice.example.com/swarm"]);
    sandbox.ok(["swarm", "create", "Research"]);
    sandbox
}

#[test]
fn readable_key_signs_nothing() {
    let sandbox = owner();
    let key = sandbox.home().join(".swarm/agent.key");
    for mode in [0o644, 0o640, 0o604] {
        files::chmod(&key, mode);
        let refused = sandbox.run(["swarm", "invite"]);
        assert_ne!(refused.code, Some(0), "{mode:o}");
        assert!(refused.stderr.contains("agent.key"), "{mode:o}: {}", refused.stderr);
        assert!(refused.stderr.contains("set it to 600"), "{mode:o}: {}", refused.stderr);
        let section = swarm_section(&sandbox);
        let of_key = section.iter().find(|(_, message, _)| message.contains("the key of 'alice'")).unwrap();
        assert_eq!(of_key.0, "fail", "{mode:o}: {section:?}");
    }
    files::chmod(&key, 0o600);
    sandbox.ok(["swarm", "invite"]);
    assert!(swarm_section(&sandbox).iter().all(|(status, ..)| status != "fail"));
}

#[test]
fn key_in_workspace_warns() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let home = sandbox.path().join("keys");
    let within = |args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env("SWARM_HOME", &home);
        test_support::RunOutput::of(&mut command)
    };
    within(&["swarm", "init", "--agent", "alice", "--endpoint", "https://alice.example.com/swarm"]).ok();
    let report = within(&["doctor"]);
    let output = format!("{}{}", report.stdout, report.stderr);
    assert!(output.contains("the key of 'alice' is inside the workspace"), "{output}");
    assert!(output.contains("SWARM_HOME"), "{output}");
}
