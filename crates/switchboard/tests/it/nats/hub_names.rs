//! Names of hubs, and the size of what they announce of their agents.

use serde_json::json;
use test_support::nats::Release;
use test_support::poll;

use super::hub::Linked;
use super::server;

#[test]
fn second_hub_of_name_waits_for_first() {
    let test = "second_hub_of_name_waits_for_first";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let mut first = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    office.wait_for("codex@lab");
    let second = Linked::start("lab", &server.url(), &["other"], json!({}));
    let complaint = "another hub is called 'lab' as well; give each its own nats.hub";
    poll::until(complaint, || second.errors().contains(complaint).then_some(()));
    // The first hub has its agents and its mail as before.
    let sent = office.send("qc-1", &["codex@lab", "still there?"]);
    first.wait_for_mail("codex", "still there?");
    office.wait_for_state(sent["native_id"].as_str().unwrap(), "codex@lab", "delivered");
    let known: Vec<_> = office.sandbox.json(["agents"]).iter().map(|agent| agent["name"].clone()).collect();
    assert!(!known.contains(&json!("other@lab")), "{known:?}");
    // Killed and restarted, it is the same hub.
    first.kill_and_restart();
    office.send("qc-1", &["codex@lab", "and now?"]);
    first.wait_for_mail("codex", "and now?");
    assert!(first.serve.take().unwrap().terminate().success());
    office.wait_for("other@lab");
}

#[test]
fn oversized_agent_descriptions_do_not_end_link() {
    let test = "oversized_agent_descriptions_do_not_end_link";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    // Our roles are a closed list; other programs may write any.
    let path = lab.sandbox.file("state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for number in 0..10 {
        state["chatAgents"][format!("long-{number}")] = json!({ "role": "x".repeat(120_000) });
    }
    test_support::files::put_by_rename(path, state.to_string());
    office.wait_for("long-9@lab");
    lab.send("codex", &["qc-1", "all is well"]);
    office.wait_for_mail("qc-1", "all is well");
}
