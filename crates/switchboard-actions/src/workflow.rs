//! The actions that run workflows, whose phases are each completed with evidence.

use door_workspace::{
    CompletePhase, PhaseCompleted, StartWorkflow, WorkflowLibrary, WorkflowStarted, WorkflowStopped,
    Workspace,
};
use serde_json::Value;
use switchboard_core::Name;

use crate::error::ActionError;

/// Name by which callers mean the session instead of an agent.
const SESSION: &str = "session";

/// Starts a workflow.
pub async fn start_workflow(
    workspace: &Workspace,
    request: StartWorkflow,
) -> Result<WorkflowStarted, ActionError> {
    if request.force && request.suspend {
        return Err(ActionError::Conflict { first: "force", second: "suspend" });
    }
    Ok(workspace.start_workflow(request).await?)
}

/// Completes a phase of a workflow. The phase's artifacts must exist in the workspace.
pub async fn complete_phase(
    workspace: &Workspace,
    request: CompletePhase,
) -> Result<PhaseCompleted, ActionError> {
    Ok(workspace.complete_workflow_phase(request).await?)
}

/// Stops the active workflow of the session or of an agent.
///
/// A workflow that was suspended for the stopped one resumes.
pub async fn stop_workflow(
    workspace: &Workspace,
    reason: Option<String>,
    owner: Option<Name>,
) -> Result<WorkflowStopped, ActionError> {
    Ok(workspace.stop_workflow(reason, owner).await?)
}

/// Returns the state of the session, its agents and their workflows.
pub async fn workflow_state(workspace: &Workspace) -> Result<Value, ActionError> {
    Ok(workspace.workflow_state().await?)
}

/// Lists the workflows that can be started.
pub async fn list_workflows(workspace: &Workspace) -> Result<WorkflowLibrary, ActionError> {
    Ok(workspace.workflow_library().await?)
}

/// Parses the owner of a workflow; none or `session` means everyone.
pub fn workflow_owner(agent: Option<&str>) -> Result<Option<Name>, ActionError> {
    Ok(agent.filter(|agent| *agent != SESSION).map(Name::parse).transpose()?)
}
