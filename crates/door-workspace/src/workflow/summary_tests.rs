use super::*;
use crate::test_workspace::{TestWorkspace, name};
use crate::workflow::StartWorkflow;

#[tokio::test]
async fn state_is_returned_with_secrets_redacted() {
    let t = TestWorkspace::new(&["token-keeper"]).await;
    let mut state = t.json("state.json");
    state["startupCommands"] = json!({ "codex": "codex", "API-Key": "abc" });
    state["authToken"] = "abc".into();
    state["nested"] = json!([{ "client_secret": { "deep": "abc" } }, { "plain": 1 }]);
    state["chatAgents"]["token-keeper"]["password"] = "abc".into();
    t.write("state.json", state.to_string());
    let mut sanitize_text = t.workspace.workflow_state().await.unwrap();
    assert!(!sanitize_text.to_string().contains("abc"));
    let summary = sanitize_text.as_object_mut().unwrap().remove("summary").unwrap();
    assert_eq!(
        summary,
        json!({ "session": null, "suspended": [], "agents": {}, "unusableWorkflowFiles": [] })
    );
    state["startupCommands"]["API-Key"] = "[REDACTED]".into();
    state["authToken"] = "[REDACTED]".into();
    state["nested"][0]["client_secret"] = "[REDACTED]".into();
    state["chatAgents"]["token-keeper"]["password"] = "[REDACTED]".into();
    assert_eq!(sanitize_text, state);
}

#[tokio::test]
async fn summary_names_active_workflow_and_due_phase() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.write("workflows/bad.json", "{");
    for (workflow, target) in [("accuracy", None), ("chat", None), ("handoff", Some("codex"))] {
        let request = StartWorkflow {
            name: workflow.into(),
            target: target.map(name),
            suspend: target.is_none(),
            ..StartWorkflow::default()
        };
        t.workspace.start_workflow(request).await.unwrap();
    }
    let summary = &t.workspace.workflow_state().await.unwrap()["summary"];
    assert_eq!((&summary["session"]["workflow"], &summary["session"]["total"]), (&"chat".into(), &4.into()));
    assert_eq!(summary["session"]["next"]["id"], "activate_persona");
    assert_eq!(summary["session"]["prohibitedTools"], json!(["run_in_terminal"]));
    assert_eq!(summary["suspended"], json!(["accuracy"]));
    assert_eq!(summary["agents"]["codex"]["next"]["requiredEvidence"], "the file with the part to hand over");
    assert_eq!(summary["unusableWorkflowFiles"][0]["path"], "workflows/bad.json");
}

#[tokio::test]
async fn damaged_state_is_an_error() {
    let t = TestWorkspace::new(&[]).await;
    t.write("state.json", "{");
    let sanitize_text = t.workspace.workflow_state().await;
    assert!(matches!(sanitize_text, Err(WorkspaceError::DamagedState { .. })), "{sanitize_text:?}");
}

#[tokio::test]
async fn agent_gets_its_own_workflows_rules() {
    let t = TestWorkspace::new(&["ann", "bob"]).await;
    let request = StartWorkflow {
        name: "chat".into(),
        target: Some("ann".parse().unwrap()),
        ..StartWorkflow::default()
    };
    t.workspace.start_workflow(request).await.unwrap();
    let rules = async |name: &str| {
        let agent: AgentId = name.parse().unwrap();
        t.workspace.active_rules(Some(&agent)).await.unwrap()
    };
    assert!(rules("Ann").await.starts_with("[PROTOCOL STATUS: CHAT WORKFLOW ACTIVE]"));
    assert!(rules("bob").await.starts_with("No active workflow."));
}

#[tokio::test]
async fn active_rules_are_rendered_as_text() {
    let t = TestWorkspace::new(&[]).await;
    assert_eq!(
        t.workspace.active_rules(None).await.unwrap(),
        "No active workflow. Tools are not restricted; start_workflow starts one."
    );
    let request = StartWorkflow { name: "chat".into(), ..StartWorkflow::default() };
    t.workspace.start_workflow(request).await.unwrap();
    let chat = WorkflowLibrary::built_in().named("chat").unwrap().clone();
    assert_eq!(
        t.workspace.active_rules(None).await.unwrap(),
        format!(
            "[PROTOCOL STATUS: CHAT WORKFLOW ACTIVE]\n[RESTRICTED MCP TOOLS: run_in_terminal]\n{}\nStep 1/4 \
             (activate_persona): {}",
            chat.persona, chat.phases[0].instruction
        )
    );
    let mut state = t.json("state.json");
    state["session"]["activeWorkflow"] = "phonefriend".into();
    t.write("state.json", state.to_string());
    assert_eq!(
        t.workspace.active_rules(None).await.unwrap(),
        "[PROTOCOL STATUS: PHONEFRIEND WORKFLOW ACTIVE]\nThis workflow is unknown here; stop_workflow ends it."
    );
}
