//! `switchboard team`

use insta::assert_snapshot;

use crate::workspace;

#[test]
fn team_is_created_filled_and_emptied() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["team"]), @"
    exit 0
    --- stderr
    No teams yet; `switchboard team create NAME` makes one.
    ");
    assert_snapshot!(sandbox.show(["team", "create", "backend", "--title", "The back end"]), @"
    exit 0
    --- stdout
    backend (The back end): no members yet
    ");
    assert_snapshot!(sandbox.show(["team", "add", "backend", "codex", "claude"]), @"
    exit 0
    --- stdout
    backend (The back end): claude, codex
    ");
    assert_snapshot!(sandbox.show(["team", "remove", "backend", "claude"]), @"
    exit 0
    --- stdout
    backend (The back end): codex
    ");
    assert_snapshot!(sandbox.show(["team", "remove", "backend", "claude"]), @"
    exit 0
    --- stdout
    backend (The back end): codex
    --- stderr
    claude is not in backend
    ");
    assert_snapshot!(sandbox.show(["team", "list", "--json"]), @r#"
    exit 0
    --- stdout
    {"composite":false,"id":"backend","members":["codex"],"title":"The back end"}
    "#);
}

#[test]
fn team_message_skips_its_sender() {
    let sandbox = workspace();
    sandbox.ok(["agents", "register", "gemini"]);
    sandbox.ok(["team", "create", "backend"]);
    assert_snapshot!(sandbox.show(["send", "team:backend", "anyone?"]), @"
    exit 5
    --- stderr
    error: the group 'team:backend' has no recipient except the sender
    hint: `switchboard agents` lists the registered agents
    ");
    sandbox.ok(["team", "add", "backend", "codex", "claude"]);
    assert_snapshot!(sandbox.show_as("claude", ["send", "team:backend", "hello"]), @"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    ");
    assert_snapshot!(sandbox.show(["send", "team:backend", "hello", "--json"]), @r#"
    exit 0
    --- stdout
    {"deliveries":[{"agent":"claude","route":"mailbox:claude","state":"delivered"},{"agent":"codex","route":"mailbox:codex","state":"delivered"}],"id":"[id-1]","native_id":"[msg-2]","to":"team:backend"}
    "#);
    assert!(sandbox.json(["inbox", "gemini"]).is_empty());
    let message = &sandbox.json(["inbox", "codex"])[0];
    assert_eq!(message["to"], "team:backend");
}

#[test]
fn composite_team_has_one_member() {
    let sandbox = workspace();
    sandbox.ok(["team", "create", "solo", "--composite"]);
    sandbox.ok(["team", "add", "solo", "codex"]);
    assert_snapshot!(sandbox.show(["team", "add", "solo", "claude"]), @"
    exit 1
    --- stderr
    error: 'solo' is a composite team, whose only member is codex
    hint: create a team without --composite for several members
    ");
}

#[test]
fn unknown_team_or_member_is_named() {
    let sandbox = workspace();
    sandbox.ok(["team", "create", "backend"]);
    assert_snapshot!(sandbox.show(["team", "add", "backnd", "codex"]), @"
    exit 5
    --- stderr
    error: no team is named 'backnd'
    hint: did you mean 'backend'?
    ");
    assert_snapshot!(sandbox.show(["team", "add", "backend", "codx"]), @"
    exit 5
    --- stderr
    error: no agent is named 'codx'
    hint: did you mean 'codex'?
    ");
    assert_snapshot!(sandbox.show(["send", "team:backnd", "x"]), @"
    exit 5
    --- stderr
    error: no team is named 'backnd'
    hint: did you mean 'backend'?
    ");
}

#[test]
fn each_member_gets_its_own_message() {
    let sandbox = workspace();
    sandbox.ok(["team", "create", "backend"]);
    sandbox.ok(["team", "add", "backend", "codex", "claude"]);
    sandbox.ok(["agents", "role", "codex", "reviewer"]);
    assert_snapshot!(sandbox.show(["team", "message", "backend", "hello"]), @"
    exit 0
    --- stdout
    claude: [msg-1]
    codex: [msg-2]
    ");
    assert_snapshot!(sandbox.show(["team", "message", "backend", "hello", "--role", "reviewer", "--json"]), @r#"
    exit 0
    --- stdout
    {"error":null,"member":"codex","native_id":"[msg-3]","persona":false}
    "#);
    assert_snapshot!(sandbox.show(["team", "message", "backend", "hello", "--role", "tester"]), @"
    exit 5
    --- stderr
    error: role_filter 'tester': no member of team 'backend' but perhaps the sender has that role; roles there: reviewer
    hint: `switchboard agents` lists the roles
    ");
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 2);
}
