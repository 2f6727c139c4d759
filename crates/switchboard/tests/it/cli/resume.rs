//! `switchboard resume`, and the stop before it

use serde_json::{Value, json};
use test_support::{Sandbox, files};

use crate::workspace;

/// Sends nine replies, the last of which is stopped; returns its id.
fn storm(sandbox: &Sandbox) -> String {
    let mut last = sandbox.send("claude", "codex", "start");
    let pair = [("codex", "claude"), ("claude", "codex")];
    for (from, to) in pair.into_iter().cycle().take(8) {
        last = sandbox.run_as(from, ["send", to, "re", "--reply-to", &last]).ok();
    }
    let ran = sandbox.run_as("codex", ["send", "claude", "too much", "--reply-to", &last]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("its limit is 8") && ran.stderr.contains("switchboard resume"), "{ran:?}");
    ran.stdout.lines().next().unwrap().to_owned()
}

#[test]
fn resumed_messages_are_delivered() {
    let sandbox = workspace();
    assert_eq!(sandbox.run(["resume"]).stderr, "Nothing is stopped.\n");
    let id = storm(&sandbox);
    let stopped = sandbox.json(["resume"]);
    assert_eq!(stopped.len(), 1);
    assert_eq!((&stopped[0]["native_id"], &stopped[0]["from"]), (&json!(id), &json!("codex")));
    let inbox = sandbox.ok(["inbox"]);
    assert!(
        inbox.contains("Stopped a message from codex to claude") && inbox.contains("switchboard resume"),
        "{inbox}"
    );

    let ran = sandbox.run_as("codex", ["resume", "--all", "--yes"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "refused");
    assert_eq!(sandbox.run(["resume", "claude", "--yes"]).ok(), format!("{id} goes on to claude"));
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "delivered");
    let mail = sandbox.json(["inbox", "claude", "--limit", "100"]);
    assert!(mail.iter().any(|message| message["body"] == "too much"), "{mail:?}");
    let receipts = sandbox.file("outbox/codex");
    assert!(receipts.join(format!("{id}.receipt.json")).exists());
    assert_eq!(sandbox.run(["resume", &id, "--yes"]).code, Some(5));
    let typo = sandbox.run(["resume", "claud", "--yes"]);
    assert!(typo.code == Some(5) && typo.stderr.contains("did you mean 'claude'?"), "{typo:?}");
    let answer = sandbox.run_as("claude", ["send", "codex", "on we go", "--reply-to", &id]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
}

#[test]
fn budget_stops_agent_and_notifies_both() {
    let sandbox = workspace();
    let settings = json!({ "budgets": { "agents": { "claude": { "messagesPerHour": 2 } } } });
    files::put(sandbox.path().join("switchboard.config.json"), settings.to_string());
    for _ in 0..2 {
        sandbox.send("claude", "codex", "task");
    }
    let ran = sandbox.run_as("claude", ["send", "codex", "one more", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let error: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert_eq!(message, "claude wrote 3 messages within an hour and its budget is 2");
    sandbox.send("codex", "claude", "others go on");
    assert!(sandbox.ok(["inbox"]).contains("its budget is 2"));
    sandbox.ok(["resume", "claude", "--yes"]);
    sandbox.send("claude", "codex", "again");

    files::put(sandbox.path().join("switchboard.config.json"), r#"{"budgets":{"agents":{"a/b":{}}}}"#);
    let ran = sandbox.run(["tail"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("'budgets.agents'"), "{ran:?}");
}
