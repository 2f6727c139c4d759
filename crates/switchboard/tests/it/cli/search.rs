//! `switchboard search`

use insta::assert_snapshot;

use crate::workspace;

#[test]
fn search_matches_all_terms_newest_first() {
    let sandbox = workspace();
    sandbox.send("claude", "codex", "the parser fails on tabs");
    sandbox.send("codex", "claude", "the printer works");
    let newest = sandbox.send("claude", "codex", "the parser works on tabs now");
    assert_snapshot!(sandbox.show(["search", "parser", "tabs"]), @"
    exit 0
    --- stdout
    claude → codex  delegate_task  just now  delivered
    [msg-1]
        the parser works on tabs now
    claude → codex  delegate_task  just now  delivered
    [msg-2]
        the parser fails on tabs
    ");
    assert_snapshot!(sandbox.show(["search", "parser", "--limit", "1", "--json"]), @r#"
    exit 0
    --- stdout
    {"id":"[id-1]","native_id":"[msg-1]","from":"claude","to":"codex","kind":"delegate_task","body":"the parser works on tabs now","in_reply_to":null,"thread":"[id-1]","sent_at":"[time]","door":"workspace","verified":true,"state":"delivered","seq":3}
    "#);
    assert_snapshot!(sandbox.show(["search", "parser", "--before", &newest, "--json"]), @r#"
    exit 0
    --- stdout
    {"id":"[id-2]","native_id":"[msg-2]","from":"claude","to":"codex","kind":"delegate_task","body":"the parser fails on tabs","in_reply_to":null,"thread":"[id-2]","sent_at":"[time]","door":"workspace","verified":true,"state":"delivered","seq":1}
    "#);
    assert_snapshot!(sandbox.show(["search", "lexer"]), @"
    exit 0
    --- stderr
    Nothing found.
    ");
}

#[test]
fn search_terms_are_literal() {
    let sandbox = workspace();
    sandbox.send("claude", "codex", "what does \"NEAR(a b)\" AND col:x mean?");
    for words in ["\"NEAR(a", "col:x", "AND", "b)\"", "*", "'"] {
        let ran = sandbox.run(["search", words]);
        assert_eq!(ran.code, Some(0), "{words}: {ran:?}");
    }
    assert_eq!(sandbox.json(["search", "NEAR(a", "AND"]).len(), 1);
}
