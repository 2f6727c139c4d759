use serde_json::json;

use super::*;
use crate::test_workspace::{TestWorkspace, agent, name, write_carelessly};
use crate::workflow::{Artifact, CompletePhase, StartWorkflow};

async fn start(t: &TestWorkspace, workflow: &str, target: Option<&str>) {
    let (name, target) = (workflow.to_owned(), target.map(name));
    let request = StartWorkflow { name, target, force: true, ..StartWorkflow::default() };
    t.workspace.start_workflow(request).await.unwrap();
}

async fn route(t: &TestWorkspace, action: &str, metadata: Value) -> Result<String, String> {
    let Value::Object(metadata) = metadata else { panic!("an object") };
    let kind = Kind::parse(action).unwrap();
    let found = t.workspace.workflow_recipient(&agent("ann"), &kind, &metadata).await;
    found.map(|agent| agent.to_string()).map_err(|error| error.to_string())
}

async fn crew() -> TestWorkspace {
    let t = TestWorkspace::new(&["ann", "bob", "cid", "dan"]).await;
    for (who, role) in [("bob", "lead"), ("cid", "coder 1"), ("dan", "reviewer")] {
        t.workspace.assign_role(name(who), role).await.unwrap();
    }
    write_carelessly(&t.workspace_folder().join("plan.md"), "x");
    t
}

async fn complete_first(t: &TestWorkspace, workflow: &str) {
    let artifacts = vec![Artifact { path: "plan.md".into(), description: None }];
    let request =
        CompletePhase { workflow: workflow.into(), phase: 1, artifacts, ..CompletePhase::default() };
    t.workspace.complete_workflow_phase(request).await.unwrap();
}

#[tokio::test]
async fn each_workflow_routes_its_actions() {
    let t = crew().await;
    for (workflow, action, expected) in [
        ("handoff-lead", "execute", "bob"),
        ("handoff", "execute", "cid"),
        ("handoff", "delegate_task", "cid"),
        ("challenge", "execute", "dan"),
    ] {
        start(&t, workflow, None).await;
        complete_first(&t, workflow).await;
        assert_eq!(route(&t, action, json!({})).await.as_deref(), Ok(expected), "{workflow} {action}");
    }
}

#[tokio::test]
async fn missing_workflow_lists_the_routes() {
    let t = crew().await;
    assert_eq!(
        route(&t, "execute", json!({})).await.unwrap_err(),
        "recipient: none was given, and no active workflow routes 'execute'. Tip: name a recipient, or \
         start a workflow that has one: handoff (execute, delegate_task), handoff-lead (execute), challenge (execute)"
    );
}

#[tokio::test]
async fn unrouted_action_lists_valid_ones() {
    let t = crew().await;
    start(&t, "handoff", None).await;
    assert_eq!(
        route(&t, "delegate", json!({})).await.unwrap_err(),
        "action 'delegate' has no recipient in workflow 'handoff'; valid actions: execute, delegate_task. Did you \
         mean 'delegate_task'?"
    );
    start(&t, "accuracy", None).await;
    assert_eq!(
        route(&t, "execute", json!({})).await.unwrap_err(),
        "action 'execute' has no recipient in workflow 'accuracy'; valid actions: none, name a recipient"
    );
}

#[tokio::test]
async fn metadata_all_bypasses_the_first_phase() {
    let t = crew().await;
    start(&t, "handoff", None).await;
    assert_eq!(
        route(&t, "execute", json!({ "all": false })).await.unwrap_err(),
        "PHASE GATE: 'execute' in 'handoff' waits for phase 1. Required: phase 1 (split) completed. Evidence: the \
         file with the part to hand over. Tip: complete_workflow_phase(workflow=\"handoff\", phase=1, \
         artifacts=[…]), or set metadata.all to true to send it without the phase"
    );
    assert_eq!(route(&t, "execute", json!({ "all": true })).await.as_deref(), Ok("cid"));
    start(&t, "challenge", None).await;
    assert_eq!(route(&t, "execute", json!({})).await.as_deref(), Ok("dan"), "a challenge has no gate");
}

#[tokio::test]
async fn recipient_in_own_workflow_is_locked() {
    let t = crew().await;
    start(&t, "challenge", None).await;
    start(&t, "accuracy", Some("dan")).await;
    assert_eq!(
        route(&t, "execute", json!({})).await.unwrap_err(),
        "recipient 'dan' is locked: it is in the workflow 'accuracy'. Tip: wait until that ends, or name another \
         recipient"
    );
    start(&t, "challenge", Some("dan")).await;
    let execute = Kind::parse("execute").unwrap();
    let to_itself = t.workspace.workflow_recipient(&agent("DAN"), &execute, &Map::new()).await;
    assert_eq!(to_itself.unwrap(), agent("dan"));
}

#[tokio::test]
async fn senders_workflow_precedes_the_sessions() {
    let t = crew().await;
    start(&t, "challenge", None).await;
    start(&t, "handoff-lead", Some("ann")).await;
    assert_eq!(route(&t, "execute", json!({ "all": true })).await.as_deref(), Ok("bob"));
}

#[tokio::test]
async fn unassigned_role_lists_assigned_ones() {
    let t = crew().await;
    t.workspace.assign_role(name("dan"), "none").await.unwrap();
    start(&t, "challenge", None).await;
    let error = route(&t, "execute", json!({})).await.unwrap_err();
    assert!(
        error.starts_with("recipient 'reviewer': no agent has the role reviewer; roles taken: lead, coder 1"),
        "{error}"
    );
}
