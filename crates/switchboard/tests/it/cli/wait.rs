//! `switchboard wait`

use insta::assert_snapshot;

use crate::workspace;

#[test]
fn existing_mail_prints_at_once_as_seen() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "hello");
    assert_snapshot!(sandbox.show_as("codex", ["wait", "--timeout", "60s"]), @"
    exit 0
    --- stdout
    claude → codex  delegate_task  just now  delivered
    [msg-1]
    > hello
    ");
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "seen");
}

#[test]
fn timeout_is_a_temporary_failure() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show_as("codex", ["wait", "--timeout", "0.1s"]), @"
    exit 3
    --- stderr
    error: no message for codex within 0.1 s
    hint: wait again, or look at everything with `switchboard inbox`
    ");
    assert_snapshot!(sandbox.show_as("codex", ["wait", "--timeout", "0.1s", "--json"]), @r#"
    exit 3
    --- stdout
    {"error":{"code":"timeout","hint":"wait again, or look at everything with `switchboard inbox`","message":"no message for codex within 0.1 s"}}
    "#);
}

#[test]
fn seen_mail_does_not_end_wait() {
    let sandbox = workspace();
    sandbox.send("claude", "codex", "hello");
    sandbox.run_as("codex", ["inbox"]).ok();
    assert_eq!(sandbox.run_as("codex", ["wait", "--timeout", "0.1s"]).code, Some(3));
}

#[test]
fn later_mail_ends_the_wait() {
    let sandbox = workspace();
    let mut command = sandbox.command(["wait", "--timeout", "60s", "--json", "--from", "codex"]);
    let mut waiting = test_support::Running::start(&mut command);
    let id = sandbox.send("claude", "codex", "later");
    let (status, lines) = waiting.wait_for_rest(test_support::poll::TIMEOUT);
    assert_eq!((status.code(), lines.len()), (Some(0), 1), "{}", waiting.errors());
    assert_snapshot!(sandbox.redact(&lines[0]), @r#"{"id":"[id-1]","native_id":"[msg-1]","from":"claude","to":"codex","kind":"delegate_task","body":"later","in_reply_to":null,"thread":"[id-1]","sent_at":"[time]","door":"workspace","verified":true,"state":"delivered","seq":1}"#);
    assert!(lines[0].contains(&id));
}

#[test]
fn unknown_mailbox_is_refused() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["wait", "codx"]), @"
    exit 5
    --- stderr
    error: no agent is named 'codx'
    hint: did you mean 'codex'?
    ");
}

#[test]
fn waiting_agent_is_awake() {
    let sandbox = workspace();
    let presence = || sandbox.json(["agents"])[1]["presence"].clone();
    assert_eq!(presence(), "offline");
    let mut waiting = sandbox.start(["wait", "--from", "codex"]);
    test_support::poll::until("the waiting agent to be awake", || (presence() == "awake").then_some(()));
    sandbox.send("claude", "codex", "good morning");
    assert!(waiting.wait().success(), "{}", waiting.errors());
}
