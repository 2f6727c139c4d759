use serde_json::json;
use switchboard_hub::Registration;

use super::*;
use crate::test_workspace::{TestWorkspace, agent, name};

#[test]
fn role_is_parsed_in_every_spelling() {
    for role in Role::ALL {
        assert_eq!(Role::read(role.as_str()), Some(role));
        assert_eq!(Role::read(&role.as_str().to_uppercase().replace(' ', "_")), Some(role));
        assert_eq!(Role::read(&format!("  {} ", role.as_str().replace(' ', " - "))), Some(role));
    }
    for (text, role) in [
        ("Lead-Coder", Role::Lead),
        ("lead  coder", Role::Lead),
        ("coder1", Role::Coder1),
        ("CODER_2", Role::Coder2),
        ("task_runner", Role::TaskRunner),
    ] {
        assert_eq!(Role::read(text), Some(role), "{text}");
    }
    for text in ["", " ", "none", "coder 3", "wizard", "leader board"] {
        assert_eq!(Role::read(text), None, "{text}");
    }
}

#[test]
fn unknown_role_is_refused_with_suggestions() {
    assert_eq!(Role::parse(" None "), Ok(None));
    let error = Role::parse("reviwer").unwrap_err().to_string();
    assert_eq!(
        error,
        "role 'reviwer' is unknown; did you mean 'reviewer'? use one of: lead, coder 1, coder 2, reviewer, \
         tester, researcher, execution, coder, planner, task runner, analyst, none"
    );
    assert!(Role::parse("wizard\u{202e}").unwrap_err().to_string().starts_with("role 'wizard\\u{202e}' is"));
}

#[test]
fn coders_share_one_persona_file() {
    let file = |role: Role| role.persona_file();
    assert_eq!([file(Role::Coder), file(Role::Coder1), file(Role::Coder2)], ["coder.md"; 3]);
    assert_eq!([file(Role::Execution), file(Role::TaskRunner)], ["task_runner.md"; 2]);
    assert_eq!(file(Role::Lead), "lead.md");
}

async fn role_in_both(t: &TestWorkspace, who: &str) -> (Option<String>, Value) {
    let directory = t.workspace.hub().directory().await.unwrap();
    let record = directory.agent(&agent(who)).unwrap();
    (record.role.clone(), t.json("state.json")["chatAgents"][who]["role"].clone())
}

#[tokio::test]
async fn role_is_stored_in_canonical_spelling() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.workspace.assign_role(name("CODEX"), "Coder_1").await.unwrap();
    assert_eq!(role_in_both(&t, "codex").await, (Some("coder 1".into()), "coder 1".into()));
    t.workspace.assign_role(name("codex"), "none").await.unwrap();
    assert_eq!(role_in_both(&t, "codex").await, (None, "none".into()));
    let registration =
        Registration { role: Some("LEAD-coder".into()), ..Registration::mailbox(name("claude")) };
    t.workspace.register(registration).await.unwrap();
    assert_eq!(role_in_both(&t, "claude").await, (Some("lead".into()), "lead".into()));
    let unknown = t.workspace.assign_role(name("codx"), "lead").await;
    assert!(matches!(unknown, Err(WorkspaceError::Hub(HubError::Unresolved(_)))), "{unknown:?}");
    let free = t.workspace.assign_role(name("codex"), "wizard").await;
    assert!(matches!(free, Err(WorkspaceError::Role(RoleError::Unknown { .. }))), "{free:?}");
    assert_eq!(role_in_both(&t, "codex").await, (None, "none".into()), "nothing was changed");
}

#[tokio::test]
async fn recipient_resolves_by_name_role_alias() {
    let t = TestWorkspace::new(&["codex", "claude", "tester"]).await;
    t.workspace.assign_role(name("codex"), "reviewer").await.unwrap();
    t.workspace.assign_role(name("claude"), "tester").await.unwrap();
    let mut state = t.json("state.json");
    state["chatAgents"]["claude"]["friendlyName"] = "The Big One!".into();
    state["chatAgents"]["codex"]["alias"] = "Sparky".into();
    t.write("state.json", state.to_string());
    for (text, expected) in [
        ("codex", "codex"),
        (" Codex ", "codex"),
        ("human", "human"),
        // A name has precedence over a role.
        ("Tester", "tester"),
        ("REVIEWER", "codex"),
        ("sparky", "codex"),
        ("the big one!", "claude"),
        ("team:backend", "team:backend"),
        ("all", "all"),
        ("alice@research", "alice@research"),
    ] {
        let found = t.workspace.resolve_recipient(text).await.unwrap();
        assert_eq!(found.to_string(), expected, "{text}");
    }
    for (text, expected) in [
        (
            "lead",
            "recipient 'lead': no agent has the role lead; roles taken: reviewer, tester. Assign it with \
             assign_role, or name an agent",
        ),
        ("codx", "no agent is named 'codx'"),
        (
            "no/name",
            "'no/name' is not an address: '/' is not allowed in a name; use letters, digits, space, '.', '_' and '-'",
        ),
    ] {
        let error = t.workspace.resolve_recipient(text).await.unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[tokio::test]
async fn shared_role_is_ambiguous_exact_role_first() {
    let t = TestWorkspace::new(&["one", "two", "three"]).await;
    t.workspace.assign_role(name("one"), "coder 1").await.unwrap();
    let found = t.workspace.resolve_recipient("coder").await.unwrap();
    assert_eq!(found.to_string(), "one", "the only coder there is");
    t.workspace.assign_role(name("two"), "coder 2").await.unwrap();
    let error = t.workspace.resolve_recipient("coder").await.unwrap_err();
    assert_eq!(error.to_string(), "recipient 'coder' is ambiguous: it matches one, two; name one of them");
    assert_eq!(t.workspace.resolve_recipient("coder_2").await.unwrap().to_string(), "two");
    t.workspace.assign_role(name("three"), "coder").await.unwrap();
    assert_eq!(t.workspace.resolve_recipient("coder").await.unwrap().to_string(), "three");
}

#[tokio::test]
async fn role_in_state_json_has_precedence() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    t.workspace.assign_role(name("claude"), "lead").await.unwrap();
    let mut state = t.json("state.json");
    state["chatAgents"]["codex"]["role"] = "Lead".into();
    state["chatAgents"]["claude"]["role"] = json!("none");
    t.write("state.json", state.to_string());
    assert_eq!(t.workspace.resolve_recipient("lead").await.unwrap().to_string(), "codex");
    // Without the file, the hub's record counts.
    t.write("state.json", "{");
    assert_eq!(t.workspace.resolve_recipient("lead").await.unwrap().to_string(), "claude");
}

#[tokio::test]
async fn role_and_name_reach_one_mailbox() {
    let t = TestWorkspace::new(&["Reviewer"]).await;
    t.workspace.assign_role(name("reviewer"), "reviewer").await.unwrap();
    for text in ["reviewer", "Reviewer", "REVIEWER"] {
        let found = t.workspace.resolve_recipient(text).await.unwrap();
        assert_eq!(found.to_string(), "Reviewer", "{text}");
    }
}
