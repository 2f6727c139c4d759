//! `switchboard route`: where a message would be delivered, and why.

use insta::assert_snapshot;

use crate::workspace;

#[test]
fn route_to_agent_team_and_unknown() {
    let sandbox = workspace();
    sandbox.ok(["team", "create", "backend"]);
    sandbox.ok(["team", "add", "backend", "codex"]);
    assert_snapshot!(sandbox.show(["route", "codex"]), @r"
    exit 0
    --- stdout
    codex from human: 1 recipient
    codex  has that name
      → mailbox:codex  taken: the most direct way
    ");
    assert_snapshot!(sandbox.show(["route", "team:backend", "--json"]), @r#"
    exit 0
    --- stdout
    {"agent":"codex","forwarded_from":null,"route":"mailbox:codex","routes":[{"door":"workspace","route":"mailbox:codex","taken":true,"why":"taken: the most direct way"}],"to":"team:backend","waits_for_serve":false,"why":"belongs to team:backend"}
    "#);
    assert_snapshot!(sandbox.show(["route", "codx"]), @r"
    exit 5
    --- stderr
    error: no agent is named 'codx'
    hint: did you mean 'codex'?
    ");
}

#[test]
fn route_through_aliases_and_doors() {
    let sandbox = workspace();
    sandbox.configure_user(
        r#"{ "links": {
            "forwards": { "old-bot": "codex" },
            "teams": { "review": ["claude", "codex"] }
        } }"#,
    );
    sandbox.ok(["channel", "post", "--channel", "general", "--text", "hello", "--from", "codex"]);
    assert_snapshot!(sandbox.show(["route", "old-bot"]), @r"
    exit 0
    --- stdout
    old-bot from human: 1 recipient
    codex  gets the mail of that one by a link
      → mailbox:codex  taken: the most direct way
        channel:general  not taken: another way comes first
    ");
    assert_snapshot!(sandbox.show(["route", "team:review"]), @r"
    exit 0
    --- stdout
    team:review from human: 2 recipients
    claude  belongs to team:review by a link
      → mailbox:claude  taken: the most direct way
    codex  belongs to team:review by a link
      → mailbox:codex  taken: the most direct way
        channel:general  not taken: another way comes first
    ");
    assert_snapshot!(sandbox.show(["route", "#general"]), @r"
    exit 0
    --- stdout
    #general from human: 1 recipient
    codex  belongs to #general
        mailbox:codex  not taken: another way comes first
      → channel:general  taken: the message is written to that channel
    ");
    // Forwarded mail is read once, by the agent that receives it.
    let id = sandbox.send("claude", "old-bot", "for whoever reads your mail");
    assert!(sandbox.ok(["receipt", &id]).contains("codex by mailbox:codex"));
    assert!(sandbox.run_as("codex", ["inbox"]).ok().contains("for whoever reads your mail"));
    assert_eq!(sandbox.run_as("codex", ["inbox", "--unseen"]).ok(), "");
}

#[test]
fn dangling_aliases_are_refused() {
    let sandbox = workspace();
    sandbox.configure_user(r#"{ "links": { "forwards": { "a": "b", "b": "a" } } }"#);
    assert_snapshot!(sandbox.show(["route", "codex"]), @"
    exit 1
    --- stderr
    error: [sandbox]/home/.config/switchboard/config.json:1: 'links.forwards.b' is refused: the forwards of 'b' form a loop: b → a → b
    hint: correct the file; docs/configuration.md lists its keys
    ");
}
