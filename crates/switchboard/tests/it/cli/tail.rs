//! `switchboard tail`

use insta::assert_snapshot;
use rustix::process::Signal;

use crate::workspace;

#[test]
fn newest_messages_of_all_agents() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["tail"]), @"exit 0");
    sandbox.send("claude", "codex", "one");
    let two = sandbox.send("codex", "claude", "two");
    sandbox.send("human", "codex", "three");
    assert_snapshot!(sandbox.show(["tail", "-n", "2"]), @"
    exit 0
    --- stdout
    codex → claude  delegate_task  just now  delivered
    [msg-1]
        two
    human → codex  delegate_task  just now  delivered
    [msg-2]
        three
    ");
    assert_snapshot!(sandbox.show(["tail", "--since", &two, "--json"]), @r#"
    exit 0
    --- stdout
    {"id":"[id-1]","native_id":"[msg-2]","from":"human","to":"codex","kind":"delegate_task","body":"three","in_reply_to":null,"thread":"[id-1]","sent_at":"[time]","door":"workspace","verified":true,"state":"delivered","seq":3}
    "#);
}

#[test]
fn follow_shows_messages_of_other_processes() {
    let sandbox = workspace();
    sandbox.send("claude", "codex", "before");
    let mut tail = sandbox.start(["tail", "-f", "--json"]);
    let body = |line: String| {
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["body"].as_str().unwrap().to_owned()
    };
    assert_eq!(body(tail.line()), "before");
    sandbox.send("claude", "codex", "during");
    assert_eq!(body(tail.line()), "during");
    sandbox.drop_file("msg_1763000000000_abc", "claude", "codex", "dropped");
    assert_eq!(body(tail.line()), "dropped");
    assert!(tail.is_running());
    tail.signal(Signal::TERM);
    assert!(!tail.wait().success());
    assert_eq!(tail.errors(), "");
}

#[test]
fn follow_without_history_starts_now() {
    let sandbox = workspace();
    sandbox.send("claude", "codex", "one");
    assert_snapshot!(sandbox.show(["tail", "-n", "0"]), @"exit 0");
    assert_snapshot!(sandbox.show(["tail", "-n", "-3"]), @"
    exit 2
    --- stderr
    error: invalid value '-3' for '--limit <N>': it must be 0 or more

    For more information, try '--help'.
    ");
}

#[test]
fn removed_message_is_an_expired_cursor() {
    let sandbox = workspace();
    let first = sandbox.send("claude", "codex", "old");
    sandbox.ok(["ack", &first, "--from", "codex"]);
    sandbox.send("claude", "codex", "new");
    sandbox.configure_user(r#"{"workspace": {"retention": {"journalDays": 0}}}"#);
    let mut serve = sandbox.serve();
    test_support::poll::until("the old file to be removed", || {
        (sandbox.json(["tail"]).len() == 1).then_some(())
    });
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    for verb in ["tail", "inbox"] {
        let args: &[&str] =
            if verb == "inbox" { &["inbox", "codex", "--since"] } else { &["tail", "--since"] };
        let ran = sandbox.run(args.iter().copied().chain([first.as_str(), "--json"]));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stdout.contains(r#""code":"cursor_expired""#), "{ran:?}");
    }
    let unknown = sandbox.run(["tail", "--since", "msg_1_never", "--json"]);
    assert!(unknown.stdout.contains(r#""code":"unknown_message""#), "{unknown:?}");
}
