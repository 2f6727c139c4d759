use proptest::prelude::*;
use serde_json::{Map, Value, json};
use switchboard_core::Name;

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";
const AT: &str = "2026-01-02T03:04:05.000Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn node(target: Target, fields: Value) -> WorkflowState {
    let Value::Object(fields) = fields else { panic!("an object") };
    WorkflowState { target, fields }
}

fn session(fields: Value) -> WorkflowState {
    node(Target::Session, fields)
}

fn codex() -> Target {
    Target::Agent(Name::parse("codex").unwrap())
}

/// Builds a state in which a workflow is at this step.
fn at(workflow: &str, step: usize) -> WorkflowState {
    session(json!({ "activeWorkflow": workflow, "currentStep": step, "activeWorkflowPhase": step }))
}

fn workflow(name: &str) -> Workflow {
    WorkflowLibrary::built_in().named(name).unwrap().clone()
}

fn begin(
    node: &WorkflowState,
    name: &str,
    active_policy: ActivePolicy,
) -> Result<(WorkflowState, WorkflowStarted), WorkflowError> {
    start(node, &workflow(name), &WorkflowLibrary::built_in(), active_policy, Some("why"), now())
}

fn finish(
    node: &WorkflowState,
    name: &str,
    phase: usize,
) -> Result<(WorkflowState, PhaseCompleted), WorkflowError> {
    finish_with(node, name, phase, None)
}

fn finish_with(
    node: &WorkflowState,
    name: &str,
    phase: usize,
    skip_reason: Option<&str>,
) -> Result<(WorkflowState, PhaseCompleted), WorkflowError> {
    let workflow = &workflow(name);
    complete(node, Completion { workflow, phase, artifacts: 2, notes: "noted", skip_reason }, now())
}

#[test]
fn start_sets_protocol_keys_and_retains_others() {
    let before = session(json!({
        "id": null, "activeWorkflow": null, "suspendedWorkflows": [], "status": "IDLE", "currentStep": 9,
        "workflowToolInvocations": [1], "initialContext": "old", "custom": { "kept": true },
    }));
    let (after, started) = begin(&before, "chat", ActivePolicy::Refuse).unwrap();
    let chat = workflow("chat");
    let expected = json!({
        "id": "sess_1767323045000", "activeWorkflow": "chat", "activePersona": chat.persona,
        "suspendedWorkflows": [], "status": "IN_PROGRESS", "startTime": AT, "currentStep": 0,
        "activeWorkflowPhase": 0, "workflowToolInvocations": [], "initialContext": "why",
        "custom": { "kept": true },
    });
    assert_eq!(Value::Object(after.fields), expected);
    let text = started.to_string();
    assert!(
        text.starts_with("Workflow 'chat' started for the session, 4 phases.\nPersona: You are in"),
        "{text}"
    );
    assert!(text.ends_with("\nStep 1: Read switchboard://active-rules and keep to them."), "{text}");

    let (after, _) = begin(&node(codex(), json!({ "role": "lead" })), "chat", ActivePolicy::Refuse).unwrap();
    let expected = json!({
        "role": "lead", "activeWorkflow": "chat", "activePersona": chat.persona, "currentStep": 0,
        "activeWorkflowPhase": 0, "workflowToolInvocations": [], "initialContext": "why",
        "workflowStartTime": AT,
    });
    assert_eq!(Value::Object(after.fields), expected);
}

#[test]
fn active_workflow_locks_until_its_last_phase() {
    // Phase 3 of 5 is not the end, whatever other workflows have.
    for step in 0..5 {
        let error = begin(&at("challenge", step), "chat", ActivePolicy::Refuse).unwrap_err();
        assert_eq!(
            error,
            WorkflowError::Locked {
                target: Target::Session,
                active: "challenge".into(),
                step,
                total: Some(5),
                asked: "chat".into()
            }
        );
    }
    let (after, started) = begin(&at("challenge", 5), "chat", ActivePolicy::Refuse).unwrap();
    assert_eq!((after.active(), started.replaced.as_deref()), (Some("chat"), Some("challenge")));
    let again = begin(&at("chat", 1), "chat", ActivePolicy::Refuse).unwrap_err().to_string();
    assert_eq!(
        again,
        "WORKFLOW LOCK: 'chat' is active for the session at step 1/4, so 'chat' was not started. Tip: complete \
         its phases or stop it; force=true replaces it and discards its progress; suspend=true suspends it \
         until the new one ends"
    );
    // The number of phases of another program's workflow is unknown, so it never ends by itself.
    let foreign = begin(&at("julesplan", 99), "chat", ActivePolicy::Refuse).unwrap_err().to_string();
    assert!(foreign.contains("at step 99/?"), "{foreign}");
}

#[test]
fn force_replaces_and_suspend_retains() {
    let (after, started) = begin(&at("challenge", 2), "chat", ActivePolicy::Replace).unwrap();
    assert_eq!(started.replaced.as_deref(), Some("challenge"));
    assert_eq!((after.active(), after.step(), after.suspended()), (Some("chat"), 0, vec![]));

    let mut before = at("challenge", 2);
    before.set("initialContext", "the parser");
    before.record_tool("grep", AT.into());
    let (after, started) = begin(&before, "chat", ActivePolicy::Suspend).unwrap();
    assert_eq!((started.replaced, started.suspended.as_deref()), (None, Some("challenge")));
    assert_eq!((after.active(), after.suspended()), (Some("chat"), vec!["challenge"]));
    let (after, stopped) = stop(&after, Some("enough"), now()).unwrap();
    assert_eq!((stopped.workflow.as_str(), stopped.resumed.as_deref()), ("chat", Some("challenge")));
    assert_eq!((after.active(), after.step(), after.suspended()), (Some("challenge"), 2, vec![]));
    assert_eq!(after.tools_used("challenge").collect::<Vec<_>>(), [(3, "grep")]);
    assert_eq!(after.fields["initialContext"], "the parser");
    assert_eq!(
        (&after.fields["status"], &after.fields["lastOutcome"]),
        (&"IN_PROGRESS".into(), &"enough".into())
    );

    let agents = node(codex(), json!({ "activeWorkflow": "chat" }));
    assert_eq!(
        begin(&agents, "enhance", ActivePolicy::Suspend),
        Err(WorkflowError::CannotSuspend { target: codex() })
    );
    let tip = begin(&agents, "enhance", ActivePolicy::Refuse).unwrap_err().to_string();
    assert!(tip.contains("for codex at step 0/4") && !tip.contains("suspend"), "{tip}");
}

#[test]
fn suspended_workflows_resume_last_first() {
    let mut current = at("accuracy", 1);
    for name in ["chat", "enhance"] {
        current = begin(&current, name, ActivePolicy::Suspend).unwrap().0;
    }
    assert_eq!(current.suspended(), ["accuracy", "chat"]);
    let (current, stopped) = stop(&current, None, now()).unwrap();
    assert_eq!((stopped.outcome.as_str(), stopped.resumed.as_deref()), ("Stopped", Some("chat")));
    let (mut current, stopped) = stop(&current, None, now()).unwrap();
    assert_eq!((stopped.resumed.as_deref(), current.step()), (Some("accuracy"), 1));
    for _ in 0..MAX_SUSPENDED {
        current = begin(&current, "chat", ActivePolicy::Suspend).unwrap().0;
    }
    let error = begin(&current, "chat", ActivePolicy::Suspend).unwrap_err();
    assert_eq!(error, WorkflowError::TooManySuspended { limit: 16 });
    assert!(begin(&current, "chat", ActivePolicy::Replace).is_ok());
}

#[test]
fn suspended_entries_of_others_are_retained() {
    let before = session(json!({
        "activeWorkflow": "chat", "suspendedWorkflows": [{ "odd": 1 }, "handoff", 7],
    }));
    let (after, stopped) = stop(&before, None, now()).unwrap();
    assert_eq!(
        (stopped.resumed.as_deref(), after.active(), after.step()),
        (Some("handoff"), Some("handoff"), 0)
    );
    assert_eq!(after.fields["suspendedWorkflows"], json!([{ "odd": 1 }, 7]));
    let (after, stopped) = stop(&after, None, now()).unwrap();
    assert_eq!((stopped.resumed, after.fields["status"].as_str()), (None, Some("IDLE")));
}

#[test]
fn stop_clears_the_state() {
    let mut before = at("chat", 2);
    before.set("custom", 1);
    before.set("id", "sess_1");
    let (after, stopped) = stop(&before, Some("  "), now()).unwrap();
    let expected = json!({
        "id": "sess_1", "activeWorkflow": null, "activePersona": null, "initialContext": null, "currentStep": 0,
        "activeWorkflowPhase": 0, "workflowToolInvocations": [], "endTime": AT, "lastOutcome": "Stopped",
        "status": "IDLE", "custom": 1,
    });
    assert_eq!(Value::Object(after.fields.clone()), expected);
    assert_eq!(stopped.to_string(), "Workflow 'chat' stopped for the session: Stopped");
    assert_eq!(
        stop(&after, None, now()).unwrap_err().to_string(),
        "No active workflow to stop for the session"
    );
}

#[test]
fn phases_complete_in_order() {
    let phase = |phase| {
        let due = WorkflowError::OutOfOrder { workflow: "accuracy".into(), phase, due: 3 };
        let done = WorkflowError::AlreadyCompleted { workflow: "accuracy".into(), phase, next: Some(3) };
        (due, done)
    };
    for number in 1..=5 {
        let (due, done) = phase(number);
        let outcome = finish(&at("accuracy", 2), "accuracy", number).map(|(node, _)| node.step());
        let expected = match number {
            1 | 2 => Err(done),
            3 => Ok(3),
            _ => Err(due),
        };
        assert_eq!(outcome, expected, "phase {number}");
    }
    let over = finish(&at("accuracy", 5), "accuracy", 5).unwrap_err().to_string();
    assert_eq!(over, "phase 5 of 'accuracy' is already completed; no phase remains, stop the workflow");
    for (active, expected) in [
        (
            json!("chat"),
            "workflow 'accuracy' is not active for the session: 'chat' is. Tip: complete phases of 'chat', or stop it first",
        ),
        (
            json!(null),
            "workflow 'accuracy' is not active for the session: none is. Tip: start_workflow(name=\"accuracy\")",
        ),
    ] {
        let error = finish(&session(json!({ "activeWorkflow": active })), "accuracy", 1).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn completed_phase_is_recorded_and_next_returned() {
    let (after, completed) = finish(&at("accuracy", 0), "accuracy", 1).unwrap();
    assert_eq!((after.step(), &after.fields["activeWorkflowPhase"]), (1, &1.into()));
    let entry = json!({ "phase": 1, "completedAt": AT, "notes": "noted" });
    assert_eq!(after.fields["completedPhases"], json!({ "accuracy": [entry] }));
    let text = completed.to_string();
    assert!(
        text.starts_with("PHASE 1 COMPLETE: accuracy (2 artifacts validated)\nStep 2: Write a plan"),
        "{text}"
    );
}

#[test]
fn last_phase_ends_and_resumes_suspended_workflow() {
    let (after, completed) = finish(&at("accuracy", 4), "accuracy", 5).unwrap();
    assert_eq!(
        completed.to_string(),
        "PHASE 5 COMPLETE: accuracy (2 artifacts validated) (Workflow Auto-Stopped)"
    );
    assert_eq!(after.active(), None);
    assert_eq!(
        (&after.fields["lastOutcome"], &after.fields["endTime"]),
        (&"Completed accuracy".into(), &AT.into())
    );
    assert_eq!(after.fields["status"], "IDLE");
    let (within, _) = begin(&at("handoff", 1), "accuracy", ActivePolicy::Suspend).unwrap();
    let (after, completed) = finish_with(&within, "accuracy", 5, Some("all of it was done before")).unwrap();
    assert_eq!(
        (completed.resumed.as_deref(), after.active(), after.step()),
        (Some("handoff"), Some("handoff"), 1)
    );
}

#[test]
fn phases_are_skipped_only_with_a_reason() {
    for reason in ["", "  \n"] {
        assert_eq!(
            finish_with(&at("accuracy", 1), "accuracy", 4, Some(reason)),
            Err(WorkflowError::EmptySkipReason)
        );
    }
    let (after, _) = finish_with(&at("accuracy", 1), "accuracy", 4, Some(" a trivial change ")).unwrap();
    let skipped = json!({ "from": 1, "reason": "a trivial change" });
    let entry = json!({ "phase": 4, "completedAt": AT, "notes": "noted", "skipped": skipped });
    assert_eq!((after.step(), &after.fields["completedPhases"]["accuracy"]), (4, &json!([entry])));
    let back = finish_with(&after, "accuracy", 2, Some("a reason")).unwrap_err();
    assert!(matches!(back, WorkflowError::AlreadyCompleted { next: Some(5), .. }), "no way back: {back}");
}

#[test]
fn required_tool_must_be_used_in_phase() {
    let used = |workflow: &str, phase: usize, tool: &str| {
        let mut node = at("handoff", 1);
        node.set("workflowToolInvocations", json!([{ "workflow": workflow, "phase": phase, "tool": tool }]));
        node
    };
    let missing = WorkflowError::ToolsNotUsed {
        workflow: "handoff".into(),
        phase: 2,
        tools: vec!["send_message".into()],
    };
    for (node, is_enough) in [
        (at("handoff", 1), false),
        (used("handoff", 1, "send_message"), false),
        (used("chat", 2, "send_message"), false),
        (used("handoff", 2, "check_inbox"), false),
        (used("handoff", 2, "send_message"), true),
    ] {
        let outcome = finish(&node, "handoff", 2).map(|(node, _)| node.step());
        assert_eq!(outcome, if is_enough { Ok(2) } else { Err(missing.clone()) }, "{:?}", node.fields);
        assert!(finish_with(&node, "handoff", 2, Some("sent by hand")).is_ok());
    }
}

#[test]
fn prohibited_tool_is_refused() {
    let chat = workflow("chat");
    let mut node = at("chat", 1);
    assert!(check_tool(&node, &chat, "send_message").is_ok());
    assert_eq!(
        check_tool(&node, &chat, "run_in_terminal").unwrap_err().to_string(),
        "ERR_PERSONA_VIOLATION: the tool 'run_in_terminal' must not be used while 'chat' is active for the \
         session. Tip: finish or stop the workflow first"
    );
    node.record_tool("run_in_terminal", AT.into());
    let used = |phase| WorkflowError::ProhibitedToolsUsed {
        workflow: "chat".into(),
        phase,
        tools: vec!["run_in_terminal".into()],
    };
    assert_eq!(finish(&node, "chat", 2), Err(used(2)));
    assert_eq!(finish_with(&node, "chat", 4, Some("a reason is no excuse")), Err(used(4)));
}

#[test]
fn unprovisioned_session_refuses_completion() {
    let mut node = at("accuracy", 0);
    node.set("provisioningStatus", "WAITING_FOR_PROVISION");
    assert_eq!(finish(&node, "accuracy", 1), Err(WorkflowError::Unprovisioned { phase: 1 }));
    node.set("provisioningStatus", "PROVISIONED");
    assert!(finish(&node, "accuracy", 1).is_ok());
}

#[test]
fn evidence_is_checked_without_state() {
    let challenge = workflow("challenge");
    let found = |paths: &[&str]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (phase, paths, expected) in [
        (6, vec!["a"], Some("phase 6 does not exist: 'challenge' has 5 phases")),
        (
            1,
            vec![],
            Some(
                "PHASE 1 INCOMPLETE: Missing required artifacts: 'challenge' asks for evidence: the files or the \
                 plan under review. Give the path of at least one file or folder in the workspace under 'artifacts'",
            ),
        ),
        (1, vec!["plan.md"], None),
        (
            3,
            vec!["plan.md"],
            Some(
                "PHASE 3 INCOMPLETE: Missing required artifacts: .switchboard/reviews/grumpy_critique.md. Write \
                 what is missing and name it under 'artifacts'",
            ),
        ),
        (3, vec!["plan.md", ".switchboard/reviews/grumpy_critique.md"], None),
    ] {
        let error = check_phase(&challenge, phase, &found(&paths)).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected, "{phase} {paths:?}");
    }
    for phase in [0, -1, i64::MIN] {
        assert_eq!(phase_number(phase), Err(WorkflowError::BadPhase { phase }));
    }
    assert!(check_phase(&workflow("chat"), 1, &[]).is_ok(), "talk leaves no file");
}

#[test]
fn lists_are_bounded_and_odd_values_harmless() {
    let mut node = at("chat", 0);
    node.set("workflowToolInvocations", "odd");
    for number in 0..510 {
        node.record_tool(&format!("tool {number}"), AT.into());
    }
    let used: Vec<(usize, &str)> = node.tools_used("chat").collect();
    assert_eq!((used.len(), used[0], used[499]), (500, (1, "tool 10"), (1, "tool 509")));
    let odd = json!({ "activeWorkflow": "chat", "currentStep": "two", "completedPhases": [], "suspendedWorkflows": 1 });
    let (after, _) = finish(&session(odd), "chat", 1).unwrap();
    assert_eq!(after.fields["completedPhases"]["chat"][0]["phase"], 1);
    let (after, _) = begin(&after, "enhance", ActivePolicy::Suspend).unwrap();
    assert_eq!(after.suspended(), ["chat"]);
    let mut silent = WorkflowState { target: Target::Session, fields: Map::new() };
    silent.record_tool("grep", AT.into());
    assert_eq!(silent.fields, Map::new(), "without a workflow nothing is noted");
}

/// An operation on a workflow's state.
#[derive(Debug, Clone)]
enum Act {
    Start(usize, ActivePolicy),
    Complete(usize, bool),
    Note(&'static str),
    Stop,
}

fn act() -> impl Strategy<Value = Act> {
    let active_policy =
        prop_oneof![Just(ActivePolicy::Refuse), Just(ActivePolicy::Replace), Just(ActivePolicy::Suspend)];
    prop_oneof![
        2 => (0..8_usize, active_policy).prop_map(|(at, active_policy)| Act::Start(at, active_policy)),
        6 => (1..6_usize, any::<bool>()).prop_map(|(phase, skip)| Act::Complete(phase, skip)),
        1 => prop_oneof![Just("send_message"), Just("grep")].prop_map(Act::Note),
        1 => Just(Act::Stop),
    ]
}

proptest! {
    #[test]
    fn whatever_is_done_a_node_stays_sound(acts in prop::collection::vec(act(), 0..60)) {
        let library = WorkflowLibrary::built_in();
        let mut node = session(json!({ "status": "IDLE", "custom": 1 }));
        for act in acts {
            let before = (node.active().map(str::to_owned), node.step(), node.suspended().len());
            let after = match &act {
                Act::Start(at, active_policy) => {
                    start(&node, &library.workflows[*at], &library, *active_policy, None, now()).map(|(node, _)| node)
                }
                Act::Complete(phase, skip) => match before.0.as_deref() {
                    Some(active) => {
                        let skip_reason = skip.then_some("because");
                        finish_with(&node, active, *phase, skip_reason).map(|(node, _)| node)
                    }
                    None => continue,
                },
                Act::Note(tool) => {
                    let mut node = node.clone();
                    node.record_tool(tool, AT.into());
                    Ok(node)
                }
                Act::Stop => stop(&node, None, now()).map(|(node, _)| node),
            };
            let Ok(after) = after else { continue };
            node = after;
            let status = node.fields["status"].as_str();
            prop_assert_eq!(status, Some(if node.active().is_some() { "IN_PROGRESS" } else { "IDLE" }));
            if let Some(active) = node.active() {
                prop_assert!(node.step() < library.named(active).unwrap().phases.len(), "{:?}", act);
            } else {
                prop_assert!(node.suspended().is_empty(), "what waits goes on as soon as it can");
            }
            prop_assert!(node.suspended().len() <= MAX_SUSPENDED);
            if let (Act::Complete(phase, skip), (Some(active), step, _)) = (&act, &before) {
                prop_assert!(*skip || *phase == step + 1);
                prop_assert!(node.active() != Some(active) || node.step() == *phase || before.2 > 0);
            }
            prop_assert_eq!(&node.fields["custom"], &json!(1));
        }
    }
}
