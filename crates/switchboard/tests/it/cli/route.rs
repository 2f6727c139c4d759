//! `switchboard route`: where a message would go, and why.

use insta::assert_snapshot;

use crate::workspace;

#[test]
fn route_to_an_agent_a_team_and_nobody() {
    let sandbox = workspace();
    sandbox.ok(["team", "create", "backend"]);
    sandbox.ok(["team", "assign", "codex", "backend"]);
    assert_snapshot!(sandbox.show(["route", "codex"]), @"");
    assert_snapshot!(sandbox.show(["route", "team:backend", "--json"]), @"");
    assert_snapshot!(sandbox.show(["route", "codx"]), @"");
}

#[test]
fn route_through_links_and_doors() {
    let sandbox = workspace();
    sandbox.configure_user(
        r##"{ "links": {
            "forwards": { "old-bot": "codex" },
            "teams": { "review": ["claude", "alice@research"] },
            "channels": { "#general": ["research"] }
        } }"##,
    );
    sandbox.ok(["channel", "post", "general", "hello", "--from", "codex"]);
    assert_snapshot!(sandbox.show(["route", "old-bot"]), @"");
    assert_snapshot!(sandbox.show(["route", "team:review"]), @"");
    assert_snapshot!(sandbox.show(["route", "#general"]), @"");
    // What is forwarded is read once, by the one who gets it.
    let id = sandbox.send("claude", "old-bot", "for whoever reads your mail");
    assert!(sandbox.ok(["receipt", &id]).contains("codex by mailbox:codex"));
    assert!(sandbox.run_as("codex", ["inbox"]).ok().contains("for whoever reads your mail"));
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    let sandbox = workspace();
    sandbox.configure_user(r#"{ "links": { "forwards": { "a": "b", "b": "a" } } }"#);
    assert_snapshot!(sandbox.show(["route", "codex"]), @"");
}
