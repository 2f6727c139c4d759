//! Claims and reservations through the tools.

use serde_json::json;
use test_support::TestServer;
use test_support::mcp::Client;

use super::stdio;
use crate::workspace;

#[test]
fn task_claim_refuses_second_and_expired_holder() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let mut claude = stdio(&sandbox, None).registered("claude");
    let mut codex = Client::sse(&served, None).registered("codex");
    let won = claude.ok("claim_task", json!({ "task": "T-1", "note": "the parser" }));
    assert_eq!((&won["task"], &won["fence"], &won["holder"]), (&json!("T-1"), &json!(1), &json!("claude")));
    let refusal = codex.refused("claim_task", json!({ "task": "t-1" }));
    assert!(refusal.contains("by claude until") && refusal.contains("ask claude"), "{refusal}");
    let refusal = claude.refused("claim_task", json!({ "task": "T-1" }));
    assert!(refusal.contains("renew_claim with fence 1"), "{refusal}");
    claude.ok("renew_claim", json!({ "task": "T-1", "fence": 1, "minutes": 60 }));
    let roster = codex.ok("get_team_roster", json!({}));
    assert_eq!(roster["agents"]["claude"]["claims"], json!(["T-1"]));

    let result = |fence: i64| {
        json!({ "recipient": "codex", "action": "submit_result", "payload": "done",
            "metadata": { "claim": { "task": "T-1", "fence": fence } } })
    };
    claude.ok("send_message", result(1));
    claude.ok("release_claim", json!({ "task": "T-1", "fence": 1 }));
    let refusal = claude.refused("send_message", result(1));
    assert!(refusal.contains("claim 1 of the task 'T-1' is not in force"), "{refusal}");
    assert_eq!(codex.ok("claim_task", json!({ "task": "T-1" }))["fence"], 2);
    let refusal = claude.refused("renew_claim", json!({ "task": "T-1", "fence": 1 }));
    assert!(refusal.contains("codex holds it now") && refusal.contains("Stop working"), "{refusal}");
}

#[test]
fn reserved_files_are_refused_and_released() {
    let sandbox = workspace();
    let mut claude = stdio(&sandbox, None).registered("claude");
    let mut codex = stdio(&sandbox, None).registered("codex");
    let made = claude.ok("reserve_files", json!({ "paths": ["src/**", "./docs/../a.md"] }));
    assert_eq!(made["patterns"], json!(["src/**", "a.md"]));
    let refusal = codex.refused("reserve_files", json!({ "paths": ["src/x.rs"] }));
    assert!(refusal.contains("'src/x.rs' overlaps 'src/**'") && refusal.contains("ask claude"), "{refusal}");
    let refusal = codex.refused("reserve_files", json!({ "paths": ["../x"] }));
    assert!(refusal.contains("is outside of"), "{refusal}");
    codex.refused("reserve_files", json!({ "paths": [] }));
    assert_eq!(
        codex.ok("get_team_roster", json!({}))["agents"]["claude"]["reserves"],
        json!(["src/**", "a.md"])
    );
    let gone = claude.ok("reserve_files", json!({ "paths": ["src/**"], "minutes": 0 }));
    assert_eq!(gone["released"], 1);
    codex.ok("reserve_files", json!({ "paths": ["src/x.rs"], "shared": true }));
}
