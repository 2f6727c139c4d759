use serde_json::{Value, json};

use super::*;
use crate::test_workspace::{TestWorkspace, name};
use crate::workflow::{StartWorkflow, WorkflowError};

async fn start(t: &TestWorkspace, workflow: &str, agent: Option<&str>) {
    let (name, target) = (workflow.to_owned(), agent.map(name));
    let request = StartWorkflow { name, target, ..StartWorkflow::default() };
    t.workspace.start_workflow(request).await.unwrap();
}

fn tools(record: &Value) -> Vec<&str> {
    record["workflowToolInvocations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|used| used["tool"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn no_workflow_allows_all_and_writes_nothing() {
    let t = TestWorkspace::new(&["codex"]).await;
    // In a formatting that a rewrite would not retain.
    let state = t.json("state.json").to_string();
    t.write("state.json", &state);
    for agent in [None, Some(name("codex")), Some(name("stranger"))] {
        t.workspace.record_tool_use(agent.as_ref(), "run_in_terminal").await.unwrap();
        t.workspace.check_tool_allowed(agent.as_ref(), "run_in_terminal").await.unwrap();
    }
    assert_eq!(t.bytes("state.json"), state.as_bytes());
    // An unreadable file does not block any tool either.
    t.write("state.json", "{");
    t.workspace.record_tool_use(None, "x").await.unwrap();
    t.workspace.check_tool_allowed(None, "run_in_terminal").await.unwrap();
    assert_eq!(t.bytes("state.json"), b"{");
}

#[tokio::test]
async fn tool_use_counts_for_governing_workflow() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    start(&t, "handoff", None).await;
    start(&t, "enhance", Some("codex")).await;
    for (agent, tool) in [(Some("CODEX"), "grep"), (Some("claude"), "read"), (None, "send_message")] {
        t.workspace.record_tool_use(agent.map(name).as_ref(), tool).await.unwrap();
    }
    let state = t.json("state.json");
    assert_eq!(tools(&state["chatAgents"]["codex"]), ["grep"]);
    assert_eq!(tools(&state["chatAgents"]["claude"]), [""; 0]);
    assert_eq!(tools(&state["session"]), ["read", "send_message"]);
    let at = iso(t.clock.now());
    let expected = json!({ "workflow": "handoff", "phase": 1, "tool": "read", "calledAt": at });
    assert_eq!(state["session"]["workflowToolInvocations"][0], expected);
}

#[tokio::test]
async fn prohibition_applies_only_to_its_workflow() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    start(&t, "chat", None).await;
    start(&t, "accuracy", Some("codex")).await;
    let allowed = |agent: Option<&str>| {
        let (workspace, agent) = (t.workspace.clone(), agent.map(name));
        async move { workspace.check_tool_allowed(agent.as_ref(), "run_in_terminal").await }
    };
    assert!(allowed(Some("codex")).await.is_ok(), "its own workflow allows it");
    for agent in [None, Some("claude")] {
        let error = allowed(agent).await.unwrap_err();
        assert!(matches!(error, WorkspaceError::Workflow(WorkflowError::ToolProhibited { .. })), "{error:?}");
    }
    t.workspace.check_tool_allowed(None, "send_message").await.unwrap();
    t.workspace.stop_workflow(None, None).await.unwrap();
    assert!(allowed(None).await.is_ok());
}
