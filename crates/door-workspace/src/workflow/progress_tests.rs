use serde_json::json;

use super::*;
use crate::state::record;
use crate::test_workspace::{TestWorkspace, name, write_carelessly};

fn begin(name: &str) -> StartWorkflow {
    StartWorkflow { name: name.to_owned(), ..StartWorkflow::default() }
}

fn completion(workflow: &str, phase: i64, paths: &[&str]) -> CompletePhase {
    let artifacts = paths.iter().map(|path| Artifact { path: (*path).to_owned(), description: None });
    let artifacts = artifacts.collect();
    CompletePhase { workflow: workflow.to_owned(), phase, artifacts, ..CompletePhase::default() }
}

/// Creates a workspace with a file `plan.md`.
async fn with_plan(agents: &[&str]) -> TestWorkspace {
    let t = TestWorkspace::new(agents).await;
    write_carelessly(&t.workspace_folder().join("plan.md"), "the plan");
    t
}

fn workflow_error(outcome: Result<impl std::fmt::Debug, WorkspaceError>) -> WorkflowError {
    match outcome {
        Err(WorkspaceError::Workflow(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn workflow_runs_to_its_end_in_session() {
    let t = with_plan(&[]).await;
    t.write("state.json", r#"{"mine":{"kept":1},"session":{"extra":true}}"#);
    let started = t
        .workspace
        .start_workflow(StartWorkflow { initial_context: Some("the parser".into()), ..begin("Accuracy ") })
        .await
        .unwrap();
    assert_eq!(started.workflow.name, "accuracy");
    let absolute = t.workspace_folder().join("plan.md");
    for phase in 1..=5 {
        let path = if phase % 2 == 0 { absolute.to_str().unwrap() } else { "plan.md" };
        let completed =
            t.workspace.complete_workflow_phase(completion("accuracy", phase, &[path])).await.unwrap();
        assert_eq!(
            (completed.phase, completed.next.is_none()),
            (usize::try_from(phase).unwrap(), phase == 5)
        );
    }
    let state = t.json("state.json");
    let session = &state["session"];
    assert_eq!((&state["mine"], &session["extra"]), (&json!({ "kept": 1 }), &true.into()));
    assert_eq!(
        (&session["activeWorkflow"], &session["status"], &session["lastOutcome"]),
        (&Value::Null, &"IDLE".into(), &"Completed accuracy".into())
    );
    let phases: Vec<_> =
        session["completedPhases"]["accuracy"].as_array().unwrap().iter().map(|p| &p["phase"]).collect();
    assert_eq!(phases, [1, 2, 3, 4, 5]);
    let last = json!({ "phase": 5, "completedAt": iso(t.clock.now()), "artifacts": [{ "path": "plan.md" }] });
    assert_eq!(state["lastCompletedArtifacts"], json!({ "accuracy": last }));
}

#[tokio::test]
async fn workflow_of_another_program_continues() {
    const FULL: &str = include_str!("../../../../fixtures/workspace/state.json");
    let t = TestWorkspace::new(&[]).await;
    t.write("state.json", FULL);
    t.write("reviews/grumpy_critique.md", "CRITICAL: …");
    let critique = ".switchboard/reviews/grumpy_critique.md";
    t.workspace.complete_workflow_phase(completion("challenge", 3, &[critique])).await.unwrap();
    let (mut expected, now): (Value, _) = (serde_json::from_str(FULL).unwrap(), iso(t.clock.now()));
    let session = &mut expected["session"];
    session["currentStep"] = 3.into();
    session["activeWorkflowPhase"] = 3.into();
    let entry = json!({ "phase": 3, "completedAt": now, "notes": "" });
    session["completedPhases"]["challenge"].as_array_mut().unwrap().push(entry);
    expected["lastCompletedArtifacts"]["challenge"] =
        json!({ "phase": 3, "completedAt": now, "artifacts": [{ "path": critique }] });
    assert_eq!(t.json("state.json"), expected);
}

#[tokio::test]
async fn agent_can_have_its_own_workflow() {
    let t = with_plan(&["codex", "claude"]).await;
    let for_codex = StartWorkflow { target: Some(name("CODEX")), ..begin("enhance") };
    let started = t.workspace.start_workflow(for_codex.clone()).await.unwrap();
    assert_eq!(started.target, Target::Agent(name("codex")));
    t.workspace.start_workflow(begin("chat")).await.unwrap();
    let record = &t.json("state.json")["chatAgents"]["codex"];
    assert_eq!((&record["activeWorkflow"], &record["type"]), (&"enhance".into(), &"chat".into()));
    assert_eq!(record["workflowStartTime"], iso(t.clock.now()));
    let locked = workflow_error(t.workspace.start_workflow(for_codex).await);
    assert!(matches!(locked, WorkflowError::Locked { target: Target::Agent(_), .. }), "{locked}");
    let target = Some(name("codex"));
    let phase = CompletePhase { target: target.clone(), ..completion("enhance", 1, &["plan.md"]) };
    t.workspace.complete_workflow_phase(phase).await.unwrap();
    assert_eq!(t.json("state.json")["chatAgents"]["codex"]["currentStep"], 1);
    assert_eq!(t.json("state.json")["session"]["currentStep"], 0);
    let stopped = t.workspace.stop_workflow(Some("enough".into()), target.clone()).await.unwrap();
    assert_eq!((stopped.workflow.as_str(), stopped.outcome.as_str()), ("enhance", "enough"));
    assert_eq!(t.json("state.json")["chatAgents"]["codex"]["lastOutcome"], "enough");
    let nothing = workflow_error(t.workspace.stop_workflow(None, target).await);
    assert_eq!(nothing.to_string(), "No active workflow to stop for codex");
    let unknown = t.workspace.stop_workflow(None, Some(name("codx"))).await;
    let Err(WorkspaceError::Hub(HubError::Unresolved(ResolveError::UnknownAgent { near, .. }))) = unknown
    else {
        panic!("{unknown:?}")
    };
    assert_eq!(near, ["codex"]);
}

#[tokio::test]
async fn agent_without_record_gets_one() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.write("state.json", "{}");
    t.workspace.start_workflow(StartWorkflow { target: Some(name("codex")), ..begin("chat") }).await.unwrap();
    assert_eq!(t.json("state.json")["chatAgents"]["codex"]["activeWorkflow"], "chat");
}

#[tokio::test]
async fn checks_follow_the_protocols_order() {
    let t = with_plan(&[]).await;
    let completed = |request| t.workspace.complete_workflow_phase(request);
    // Each request is also wrong in every later way.
    let error = workflow_error(completed(completion("nothing", 0, &["gone.md"])).await);
    assert!(matches!(error, WorkflowError::MissingArtifacts { phase: 0, .. }), "{error}");
    let error = workflow_error(completed(completion("nothing", 0, &[])).await);
    assert_eq!(error, WorkflowError::BadPhase { phase: 0 });
    let error = workflow_error(completed(completion("nothing", 9, &[])).await);
    assert!(matches!(error, WorkflowError::Unknown { .. }), "{error}");
    let error = workflow_error(completed(completion("handoff", 9, &[])).await);
    assert!(matches!(error, WorkflowError::NoSuchPhase { phase: 9, total: 3, .. }), "{error}");
    let nobody = CompletePhase { target: Some(name("nobody")), ..completion("handoff", 2, &[]) };
    let error = workflow_error(completed(nobody.clone()).await);
    assert!(matches!(error, WorkflowError::EvidenceRequired { phase: 2, .. }), "{error}");
    let artifacts = completion("", 1, &["plan.md"]).artifacts;
    let error =
        completed(CompletePhase { artifacts: artifacts.clone(), ..nobody.clone() }).await.unwrap_err();
    assert_eq!(error.to_string(), "no agent is named 'nobody'");
    let error = workflow_error(completed(CompletePhase { artifacts, target: None, ..nobody }).await);
    assert!(matches!(error, WorkflowError::NotActive { active: None, .. }), "{error}");
    assert!(!t.path("state.json").exists(), "what is refused changes nothing");
    t.workspace.start_workflow(begin("handoff")).await.unwrap();
    let error = workflow_error(completed(completion("handoff", 2, &["plan.md"])).await);
    assert!(matches!(error, WorkflowError::OutOfOrder { due: 1, .. }), "{error}");
    completed(completion("handoff", 1, &["plan.md"])).await.unwrap();
    let error = workflow_error(completed(completion("handoff", 1, &["plan.md"])).await);
    assert!(matches!(error, WorkflowError::AlreadyCompleted { .. }), "{error}");
    let error = workflow_error(completed(completion("handoff", 2, &["plan.md"])).await);
    assert!(matches!(error, WorkflowError::ToolsNotUsed { .. }), "{error}");
    t.workspace.record_tool_use(None, "send_message").await.unwrap();
    completed(completion("handoff", 2, &["plan.md"])).await.unwrap();
}

#[tokio::test]
async fn artifacts_outside_the_workspace_do_not_count() {
    let t = with_plan(&[]).await;
    let outside = tempfile::tempdir().unwrap();
    write_carelessly(&outside.path().join("plan.md"), "not ours");
    std::os::unix::fs::symlink(outside.path().join("plan.md"), t.workspace_folder().join("link.md")).unwrap();
    t.workspace.start_workflow(begin("accuracy")).await.unwrap();
    let absolute = outside.path().join("plan.md");
    for path in ["link.md", absolute.to_str().unwrap(), "../plan.md", "/etc/passwd"] {
        let error =
            workflow_error(t.workspace.complete_workflow_phase(completion("accuracy", 1, &[path])).await);
        assert!(matches!(error, WorkflowError::MissingArtifacts { .. }), "{path}: {error}");
    }
    assert_eq!(t.json("state.json")["session"]["currentStep"], 0);
}

#[tokio::test]
async fn challenge_requires_its_reviews() {
    let t = with_plan(&[]).await;
    std::fs::remove_dir(t.path("reviews")).unwrap();
    t.workspace.start_workflow(begin("challenge")).await.unwrap();
    assert!(t.path("reviews").is_dir());
    for phase in 1..=2 {
        t.workspace.complete_workflow_phase(completion("challenge", phase, &["plan.md"])).await.unwrap();
    }
    let error =
        workflow_error(t.workspace.complete_workflow_phase(completion("challenge", 3, &["plan.md"])).await);
    assert!(matches!(error, WorkflowError::UnmatchedArtifacts { phase: 3, .. }), "{error}");
    t.write("reviews/grumpy_critique.md", "CRITICAL: …");
    let critique = ".switchboard/reviews/grumpy_critique.md";
    t.workspace.complete_workflow_phase(completion("challenge", 3, &[critique])).await.unwrap();
    // At phase 3 of 5 it is still locked: it ends with its own last phase.
    let error = workflow_error(t.workspace.start_workflow(begin("chat")).await);
    assert!(
        error.to_string().starts_with("WORKFLOW LOCK: 'challenge' is active for the session at step 3/5"),
        "{error}"
    );
}

#[tokio::test]
async fn force_replaces_and_suspend_survives_restart() {
    let t = with_plan(&[]).await;
    t.workspace.start_workflow(begin("accuracy")).await.unwrap();
    t.workspace.complete_workflow_phase(completion("accuracy", 1, &["plan.md"])).await.unwrap();
    let t = t.reopen_after(|_| {}).await;
    let suspend = StartWorkflow { suspend: true, ..begin("quick start") };
    assert_eq!(t.workspace.start_workflow(suspend).await.unwrap().suspended.as_deref(), Some("accuracy"));
    let t = t.lose_database().await;
    let force = StartWorkflow { force: true, ..begin("enhance") };
    assert_eq!(t.workspace.start_workflow(force).await.unwrap().replaced.as_deref(), Some("chat"));
    let stopped = t.workspace.stop_workflow(None, None).await.unwrap();
    assert_eq!((stopped.workflow.as_str(), stopped.resumed.as_deref()), ("enhance", Some("accuracy")));
    let completed =
        t.workspace.complete_workflow_phase(completion("accuracy", 2, &["plan.md"])).await.unwrap();
    assert_eq!(completed.next.unwrap().id, "review");
}

#[tokio::test]
async fn described_workflow_has_its_own_error() {
    let t = with_plan(&[]).await;
    let described = t.workspace_folder().join(".agent/workflows/audit-all.md");
    write_carelessly(&described, "# Audit");
    let error = workflow_error(t.workspace.start_workflow(begin("Audit_All")).await);
    assert_eq!(
        error.to_string(),
        "STALE_RUNTIME: 'audit-all' is described in .agent/workflows/audit-all.md, but this switchboard has no \
         workflow of that name. Add .switchboard/workflows/audit-all.json, or update switchboard"
    );
    for name in ["audit", "../../x", ""] {
        let error = workflow_error(t.workspace.start_workflow(begin(name)).await);
        assert!(matches!(error, WorkflowError::Unknown { .. }), "{name}: {error}");
    }
    let own =
        json!({ "name": "audit-all", "persona": "p", "phases": [{ "id": "a", "instruction": "look" }] });
    t.write("workflows/audit.json", own.to_string());
    t.workspace.start_workflow(begin("audit all")).await.unwrap();
    let completed = t.workspace.complete_workflow_phase(completion("audit-all", 1, &[])).await.unwrap();
    assert_eq!(
        completed.to_string(),
        "PHASE 1 COMPLETE: audit-all (0 artifacts validated) (Workflow Auto-Stopped)"
    );
}

#[tokio::test]
async fn oversized_texts_are_refused() {
    let t = with_plan(&[]).await;
    let long = Some("x".repeat(MAX_TEXT + 1));
    let start = StartWorkflow { initial_context: long.clone(), ..begin("chat") };
    let complete = CompletePhase { notes: long.clone(), ..completion("chat", 1, &[]) };
    let skip = CompletePhase { skip_reason: long.clone(), ..completion("chat", 1, &[]) };
    let errors = [
        workflow_error(t.workspace.start_workflow(start).await),
        workflow_error(t.workspace.complete_workflow_phase(complete).await),
        workflow_error(t.workspace.complete_workflow_phase(skip).await),
        workflow_error(t.workspace.stop_workflow(long, None).await),
    ];
    let fields = ["initialContext", "notes", "skipReason", "reason"];
    let expected = fields.map(|field| WorkflowError::TooLong { field, bytes: MAX_TEXT + 1, limit: MAX_TEXT });
    assert_eq!(errors, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_completions_complete_one_phase_once() {
    let names: Vec<String> = (0..6).map(|number| format!("agent {number}")).collect();
    let t = with_plan(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let other = t.open_another().await;
    t.workspace.start_workflow(begin("handoff")).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, agent) in names.iter().enumerate() {
        let workspace = if number % 2 == 0 { t.workspace.clone() } else { other.clone() };
        let agent = name(agent);
        tasks.spawn(async move {
            let target = Some(agent.clone());
            workspace
                .start_workflow(StartWorkflow { target: target.clone(), ..begin("enhance") })
                .await
                .unwrap();
            for round in 0..5 {
                workspace.record_tool_use(Some(&agent), &format!("own {round}")).await.unwrap();
                workspace.record_tool_use(None, &format!("shared {round}")).await.unwrap();
            }
            for phase in 1..=3 {
                let phase =
                    CompletePhase { target: target.clone(), ..completion("enhance", phase, &["plan.md"]) };
                workspace.complete_workflow_phase(phase).await.unwrap();
            }
            workspace.complete_workflow_phase(completion("handoff", 1, &["plan.md"])).await.is_ok()
        });
    }
    let completed = tasks.join_all().await.into_iter().filter(|is_first| *is_first).count();
    assert_eq!(completed, 1, "the others were told that it was done");
    let Value::Object(state) = t.json("state.json") else { panic!("an object") };
    for agent in &names {
        let record = record(&state, &name(agent)).unwrap();
        assert_eq!(
            (record["currentStep"].as_u64(), record["activeWorkflow"].as_str()),
            (Some(3), Some("enhance"))
        );
        assert_eq!(record["workflowToolInvocations"].as_array().unwrap().len(), 5, "{agent}");
        assert_eq!(record["completedPhases"]["enhance"].as_array().unwrap().len(), 3, "{agent}");
    }
    let session = &state["session"];
    assert_eq!(session["workflowToolInvocations"].as_array().unwrap().len(), 30);
    assert_eq!(session["completedPhases"]["handoff"].as_array().unwrap().len(), 1);
    other.close().await;
}
