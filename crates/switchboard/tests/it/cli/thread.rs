//! `switchboard thread`

use insta::assert_snapshot;
use test_support::files;

use crate::workspace;

#[test]
fn thread_is_complete_from_any_message() {
    let sandbox = workspace();
    let question = sandbox.send("claude", "codex", "why?");
    sandbox.send("claude", "codex", "something else");
    let answer = sandbox.run_as("codex", ["send", "claude", "because", "--reply-to", &question]).ok();
    sandbox.run_as("claude", ["send", "codex", "thanks", "--reply-to", &answer]).ok();
    assert_snapshot!(sandbox.show(["thread", &answer]), @"
    exit 0
    --- stdout
    claude → codex  delegate_task  just now  delivered
    [msg-1]
        why?
    codex → claude  submit_result  just now  delivered
    [msg-2]  in reply to [msg-1]
        because
    claude → codex  submit_result  just now  delivered
    [msg-3]  in reply to [msg-2]
        thanks
    ");
    let first = sandbox.json(["thread", &question]);
    assert_eq!(first.len(), 3);
    assert_eq!(first, sandbox.json(["thread", &answer]));
    assert_snapshot!(sandbox.show(["thread", &question, "--limit", "1"]), @"
    exit 0
    --- stdout
    claude → codex  delegate_task  just now  delivered
    [msg-1]
        why?
    --- stderr
    There is more; show it with a higher --limit.
    ");
    assert_snapshot!(sandbox.show(["thread", "msg_1_nothing"]), @"
    exit 5
    --- stderr
    error: no message has the id 'msg_1_nothing'
    hint: `switchboard tail` lists recent messages with their ids
    ");
}

#[test]
fn cyclic_and_missing_parents_are_harmless() {
    let sandbox = workspace();
    let file = |id: &str, reply_to: &str| {
        let file = format!(
            r#"{{"id":"{id}","action":"delegate_task","sender":"claude","recipient":"codex","payload":"{id}","replyTo":"{reply_to}"}}"#
        );
        files::put_by_rename(sandbox.file(&format!("inbox/codex/{id}.json")), file);
    };
    file("msg_1763000000001_a", "msg_1763000000002_b");
    file("msg_1763000000002_b", "msg_1763000000001_a");
    file("msg_1763000000003_c", "msg_1763000000003_c");
    file("msg_1763000000004_d", "msg_1763000000009_gone");
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 4);
    for id in ["msg_1763000000001_a", "msg_1763000000002_b", "msg_1763000000003_c", "msg_1763000000004_d"] {
        assert!(!sandbox.json(["thread", id]).is_empty(), "{id}");
    }
}
