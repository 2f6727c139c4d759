//! `switchboard ack`

use insta::assert_snapshot;
use test_support::files;

use crate::workspace;

#[test]
fn message_ends_and_its_file_moves() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "a task");
    assert_snapshot!(sandbox.show_as("codex", ["ack", &id, "--note", "done in 1a2b3c"]), @"
    exit 0
    --- stdout
    [msg-1] acknowledged
    ");
    assert!(files::message_files(&sandbox.file("inbox/codex")).is_empty());
    assert_eq!(files::message_files(&sandbox.file("archive/codex")), [format!("{id}.json")]);
    let receipt = sandbox.file(&format!("outbox/claude/{id}.receipt.json"));
    assert_eq!(files::read_json_object(&receipt).unwrap()["status"], "acknowledged");
}

#[test]
fn repeated_ack_changes_nothing() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "a task");
    assert_snapshot!(sandbox.show_as("codex", ["ack", &id, "--json"]), @r#"
    exit 0
    --- stdout
    {"agent":"codex","id":"[id-1]","native_id":"[msg-1]","new":true,"state":"acknowledged"}
    "#);
    assert_snapshot!(sandbox.show_as("codex", ["ack", &id]), @"
    exit 0
    --- stdout
    [msg-1] acknowledged (it was already)
    ");
    assert_snapshot!(sandbox.show_as("codex", ["ack", &id, "--json"]), @r#"
    exit 0
    --- stdout
    {"agent":"codex","id":"[id-1]","native_id":"[msg-1]","new":false,"state":"acknowledged"}
    "#);
}

#[test]
fn only_the_recipient_may_ack() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "a task");
    assert_snapshot!(sandbox.show_as("claude", ["ack", &id]), @"
    exit 4
    --- stderr
    error: message [id-1] is not for claude
    hint: name yourself with --from NAME or SWITCHBOARD_AGENT_NAME
    ");
    assert_snapshot!(sandbox.show(["ack", &id]), @"
    exit 4
    --- stderr
    error: message [id-1] is not for human
    hint: say whose mail it is: --from NAME or SWITCHBOARD_AGENT_NAME
    ");
    assert_snapshot!(sandbox.show(["ack", &id, "--json"]), @r#"
    exit 4
    --- stdout
    {"error":{"code":"not_the_recipient","hint":"say whose mail it is: --from NAME or SWITCHBOARD_AGENT_NAME","message":"message [id-1] is not for human"}}
    "#);
    assert_eq!(files::message_files(&sandbox.file("inbox/codex")).len(), 1);
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "delivered");
}

#[test]
fn several_messages_at_once() {
    let sandbox = workspace();
    let (one, two) = (sandbox.send("claude", "codex", "one"), sandbox.send("claude", "codex", "two"));
    assert_snapshot!(sandbox.show_as("codex", ["ack", &one, &two]), @"
    exit 0
    --- stdout
    [msg-1] acknowledged
    [msg-2] acknowledged
    ");
    assert_snapshot!(sandbox.show_as("codex", ["ack", "msg_1_nothing"]), @"
    exit 5
    --- stderr
    error: no message has the id 'msg_1_nothing'
    hint: `switchboard tail` lists recent messages with their ids
    ");
}
