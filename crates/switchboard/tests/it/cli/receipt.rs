//! `switchboard receipt`

use insta::assert_snapshot;

use crate::workspace;

#[test]
fn receipt_shows_time_of_each_state() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "a task");
    assert_snapshot!(sandbox.show(["receipt", &id]), @"
    exit 0
    --- stdout
    [msg-1] to codex: delivered
      codex by mailbox:codex: queued [time], in_flight [time], delivered [time]
    ");
    assert_snapshot!(sandbox.show(["receipt", &id, "--json"]), @r#"
    exit 0
    --- stdout
    {"deliveries":[{"agent":"codex","route":"mailbox:codex","state":"delivered","times":{"delivered":"[time]","in_flight":"[time]","queued":"[time]"}}],"id":"[id-1]","native_id":"[msg-1]","to":"codex"}
    "#);
    sandbox.run_as("codex", ["inbox"]).ok();
    assert_snapshot!(sandbox.show(["receipt", &id]), @"
    exit 0
    --- stdout
    [msg-1] to codex: seen
      codex by mailbox:codex: queued [time], in_flight [time], delivered [time], seen [time]
    ");
    sandbox.run_as("codex", ["ack", &id, "--note", "done"]).ok();
    assert_snapshot!(sandbox.show(["receipt", &id]), @"
    exit 0
    --- stdout
    [msg-1] to codex: acknowledged
      codex by mailbox:codex: queued [time], in_flight [time], delivered [time], seen [time], acknowledged [time]
        completed: done
    ");
    let receipt = &sandbox.json(["receipt", &id])[0];
    let times = receipt["deliveries"][0]["times"].as_object().unwrap();
    let in_order = ["queued", "in_flight", "delivered", "seen", "acknowledged"];
    assert_eq!(times.len(), in_order.len(), "{times:?}");
    let at: Vec<&str> = in_order.iter().map(|state| times[*state].as_str().unwrap()).collect();
    assert!(at.is_sorted(), "{at:?}");
}

#[test]
fn receipt_has_one_delivery_per_recipient() {
    let sandbox = workspace();
    let id = sandbox.send("human", "all", "stand-up");
    sandbox.run_as("codex", ["inbox"]).ok();
    assert_snapshot!(sandbox.show(["receipt", &id]), @"
    exit 0
    --- stdout
    [msg-1] to all: delivered
      claude by mailbox:claude: queued [time], in_flight [time], delivered [time]
      codex by mailbox:codex: queued [time], in_flight [time], delivered [time], seen [time]
    ");
}

#[test]
fn unknown_message_is_not_found() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["receipt", "msg_1_nothing"]), @"
    exit 5
    --- stderr
    error: no message has the id 'msg_1_nothing'
    hint: `switchboard tail` lists recent messages with their ids
    ");
    assert_snapshot!(sandbox.show(["receipt", "msg_1_nothing", "--json"]), @r#"
    exit 5
    --- stdout
    {"error":{"code":"unknown_message","hint":"`switchboard tail` lists recent messages with their ids","message":"no message has the id 'msg_1_nothing'"}}
    "#);
}

#[test]
fn expired_message_is_not_shown_waiting() {
    let sandbox = workspace();
    // It is delivered before or after it expires, so `send` may report either exit code.
    let id = sandbox.run(["send", "codex", "soon over", "--ttl", "1ms"]).stdout;
    let id = id.trim();
    assert_eq!(sandbox.json(["receipt", id])[0]["deliveries"][0]["state"], "expired");
}
