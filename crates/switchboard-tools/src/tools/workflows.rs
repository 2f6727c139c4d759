//! Tools for workflows: work in phases, with evidence.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_actions as actions;
use switchboard_core::{Name, sanitize_value};

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const START_WORKFLOW: &str = "Start a workflow: accuracy, handoff, handoff-lead, handoff-chat, handoff-relay, \
     enhance, challenge, chat, or one of the workspace. Returns the persona and the first step.";
pub(super) const GET_WORKFLOW_STATE: &str = "The state of the session, its agents and their workflows.";
pub(super) const COMPLETE_PHASE: &str = "Complete a phase of the active workflow. The artifacts must exist in the \
     workspace. Phases go in order; skipping some needs skipReason.";
pub(super) const STOP_WORKFLOW: &str = "Stop the active workflow. One suspended for it resumes.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct StartWorkflow {
    /// Its name.
    name: String,
    /// Its subject.
    initial_context: Option<String>,
    /// Start it for this agent alone instead of the session.
    target_agent: Option<String>,
    /// Replace the active workflow.
    force: Option<bool>,
    /// Suspend the active workflow until this one ends.
    suspend: Option<bool>,
}

pub(super) async fn start_workflow(ctx: &ToolContext<'_>, input: StartWorkflow) -> Outcome {
    ctx.me()?;
    let request = door_workspace::StartWorkflow {
        name: input.name,
        initial_context: input.initial_context,
        target: owner("start_workflow", input.target_agent.as_deref())?,
        force: input.force.unwrap_or(false),
        suspend: input.suspend.unwrap_or(false),
    };
    let started = actions::start_workflow(ctx.workspace, request)
        .await
        .map_err(|error| ToolError::of("start_workflow", error))?;
    let workflow = &started.workflow;
    let first = workflow.phase(1);
    let mut text =
        format!("Started {} ({} phases).\n{}", workflow.name, workflow.phases.len(), workflow.persona);
    if let Some(phase) = first {
        text.push_str("\nStep 1: ");
        text.push_str(&phase.instruction);
    }
    Ok(Answer::new(
        text,
        json!({
            "workflow": workflow.name,
            "persona": workflow.persona,
            "phases": workflow.phases,
            "replaced": started.replaced,
            "suspended": started.suspended,
        }),
    ))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetWorkflowState {}

/// Maximum size of the state as text in bytes, about 5,000 tokens. The data has the same limit.
const STATE: usize = 20_000;

pub(super) async fn get_workflow_state(ctx: &ToolContext<'_>, _: GetWorkflowState) -> Outcome {
    ctx.me()?;
    let mut state = actions::workflow_state(ctx.workspace)
        .await
        .map_err(|error| ToolError::of("get_workflow_state", error))?;
    // Other programs also write the state. Sanitize before formatting, because the text is JSON.
    sanitize_value(&mut state);
    let mut text = serde_json::to_string(&state).unwrap_or_default();
    if text.len() > STATE {
        // Keep the workflows, which were requested; the roster shows the rest.
        state = json!({ "session": state["session"], "summary": state["summary"], "shortened": true });
        for most in [LONG, SHORT] {
            text = serde_json::to_string(&state).unwrap_or_default();
            if text.len() <= STATE {
                break;
            }
            shorten(&mut state, most);
        }
        text = serde_json::to_string(&state).unwrap_or_default();
        if text.len() > STATE {
            state = json!({ "summary": { "session": state["summary"]["session"] }, "shortened": true });
            text = serde_json::to_string(&state).unwrap_or_default();
        }
    }
    Ok(Answer::new(text, state))
}

/// First limits for a state that is too large: bytes per text, and entries per list.
const LONG: (usize, usize) = (1000, 20);
const SHORT: (usize, usize) = (100, 5);

/// Truncates long texts and drops the older entries of long lists.
fn shorten(value: &mut Value, most: (usize, usize)) {
    let (bytes, entries) = most;
    match value {
        Value::String(text) if text.len() > bytes => {
            text.truncate(text.floor_char_boundary(bytes));
            text.push('…');
        }
        Value::Array(list) => {
            list.drain(..list.len().saturating_sub(entries));
            for entry in list {
                shorten(entry, most);
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                shorten(field, most);
            }
        }
        _ => {}
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CompleteWorkflowPhase {
    /// The active one.
    workflow: String,
    /// From 1.
    phase: i64,
    /// Files of the workspace that show the work.
    artifacts: Option<Vec<Artifact>>,
    /// Notes on the work.
    notes: Option<String>,
    /// Why earlier phases are skipped.
    skip_reason: Option<String>,
    /// The agent whose workflow it is, if not the session's.
    target_agent: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Artifact {
    /// Below the workspace.
    path: String,
    /// Its content.
    description: Option<String>,
}

pub(super) async fn complete_phase(ctx: &ToolContext<'_>, input: CompleteWorkflowPhase) -> Outcome {
    ctx.me()?;
    let artifacts = input.artifacts.unwrap_or_default().into_iter();
    let request = door_workspace::CompletePhase {
        workflow: input.workflow,
        phase: input.phase,
        artifacts: artifacts
            .map(|Artifact { path, description }| door_workspace::Artifact { path, description })
            .collect(),
        notes: input.notes,
        skip_reason: input.skip_reason,
        target: owner("complete_workflow_phase", input.target_agent.as_deref())?,
    };
    let completed = actions::complete_phase(ctx.workspace, request)
        .await
        .map_err(|error| ToolError::of("complete_workflow_phase", error))?;
    let data = json!({
        "workflow": completed.workflow,
        "phase": completed.phase,
        "total": completed.total,
        "artifacts": completed.artifacts,
        "next": completed.next,
        "resumed": completed.resumed,
    });
    Ok(Answer::new(completed.to_string(), data))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct StopWorkflow {
    /// Why, or how it ended.
    reason: Option<String>,
    /// The agent whose workflow it is, if not the session's.
    target_agent: Option<String>,
}

pub(super) async fn stop_workflow(ctx: &ToolContext<'_>, input: StopWorkflow) -> Outcome {
    ctx.me()?;
    let owner = owner("stop_workflow", input.target_agent.as_deref())?;
    let stopped = actions::stop_workflow(ctx.workspace, input.reason, owner)
        .await
        .map_err(|error| ToolError::of("stop_workflow", error))?;
    let mut text = format!("Stopped {}.", stopped.workflow);
    if let Some(resumed) = &stopped.resumed {
        text.push_str(" Resumed ");
        text.push_str(resumed);
        text.push('.');
    }
    let resumed = stopped.resumed.map_or(Value::Null, Value::from);
    Ok(Answer::new(
        text,
        json!({ "workflow": stopped.workflow, "outcome": stopped.outcome, "resumed": resumed }),
    ))
}

/// Parses the agent that a workflow belongs to.
fn owner(tool: &str, agent: Option<&str>) -> Result<Option<Name>, ToolError> {
    actions::workflow_owner(agent).map_err(|error| ToolError::of(tool, error))
}
