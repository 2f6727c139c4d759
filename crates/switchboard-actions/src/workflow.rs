//! Runs workflows: phases that each complete with evidence.

use door_workspace::{
    Artifact, PhaseCompleted, WorkflowLibrary, WorkflowStarted, WorkflowStopped, Workspace,
};
use serde_json::Value;
use switchboard_core::Name;

use crate::error::ActionError;

/// The name by which callers mean the session instead of an agent.
const SESSION: &str = "session";

/// A workflow to start.
#[derive(Debug, Clone, Default)]
pub struct StartWorkflow {
    /// Its name.
    pub name: String,
    /// Its subject.
    pub context: Option<String>,
    /// The agent that it belongs to; the session by default, which means everyone.
    pub agent: Option<String>,
    /// True to replace the active workflow and discard its progress.
    pub force: bool,
    /// True to suspend the active workflow until this one ends.
    pub suspend: bool,
}

/// A phase to complete.
#[derive(Debug, Clone, Default)]
pub struct CompletePhase {
    /// The active workflow.
    pub workflow: String,
    /// The phase, counted from 1.
    pub phase: i64,
    /// Files of the workspace as evidence.
    pub artifacts: Vec<Artifact>,
    /// Notes on the work.
    pub notes: Option<String>,
    /// Why earlier phases are skipped.
    pub skip_reason: Option<String>,
    /// The agent that the workflow belongs to; the session by default.
    pub agent: Option<String>,
}

/// Starts a workflow.
pub async fn start_workflow(
    workspace: &Workspace,
    request: StartWorkflow,
) -> Result<WorkflowStarted, ActionError> {
    if request.force && request.suspend {
        return Err(ActionError::Conflict { first: "force", second: "suspend" });
    }
    let request = door_workspace::StartWorkflow {
        target: target(request.agent.as_deref())?,
        name: request.name,
        initial_context: request.context,
        force: request.force,
        suspend: request.suspend,
    };
    Ok(workspace.start_workflow(request).await?)
}

/// Completes a phase. Its artifacts must exist in the workspace.
pub async fn complete_phase(
    workspace: &Workspace,
    request: CompletePhase,
) -> Result<PhaseCompleted, ActionError> {
    let request = door_workspace::CompletePhase {
        target: target(request.agent.as_deref())?,
        workflow: request.workflow,
        phase: request.phase,
        artifacts: request.artifacts,
        notes: request.notes,
        skip_reason: request.skip_reason,
    };
    Ok(workspace.complete_workflow_phase(request).await?)
}

/// Stops the active workflow of the session or an agent; one that was suspended for it resumes.
pub async fn stop_workflow(
    workspace: &Workspace,
    reason: Option<String>,
    agent: Option<&str>,
) -> Result<WorkflowStopped, ActionError> {
    Ok(workspace.stop_workflow(reason, target(agent)?).await?)
}

/// Returns the state of the session, its agents and their workflows.
pub async fn workflow_state(workspace: &Workspace) -> Result<Value, ActionError> {
    Ok(workspace.workflow_state().await?)
}

/// Lists the workflows that can be started.
pub async fn list_workflows(workspace: &Workspace) -> Result<WorkflowLibrary, ActionError> {
    Ok(workspace.workflow_library().await?)
}

/// Parses the owner of a workflow.
fn target(agent: Option<&str>) -> Result<Option<Name>, ActionError> {
    Ok(agent.filter(|agent| *agent != SESSION).map(Name::parse).transpose()?)
}
