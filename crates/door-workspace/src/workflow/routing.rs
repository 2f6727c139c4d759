//! Routes messages without a recipient according to the active workflow.

use serde_json::{Map, Value};
use switchboard_core::{Address, AgentId, Kind, suggest_similar};

use super::definition::Workflow;
use super::error::WorkflowError;
use super::library::WorkflowLibrary;
use super::workflow_state::{Target, WorkflowState};
use crate::error::WorkspaceError;
use crate::roles::{self, Role, RoleError};
use crate::workspace::Workspace;

impl Workspace {
    /// Returns the recipient of an action in the sender's governing workflow.
    ///
    /// `metadata.all` bypasses a required phase.
    pub async fn workflow_recipient(
        &self,
        from: &AgentId,
        kind: &Kind,
        metadata: &Map<String, Value>,
    ) -> Result<AgentId, WorkspaceError> {
        let directory = self.hub().directory().await?;
        let from = directory.canonical(from);
        let own = from.realm.is_none().then_some(&from.name);
        let (state, library) = (self.read_state_json().await, self.workflow_library().await?);
        let node = WorkflowState::governing(&state, own);
        let all = metadata.get("all").and_then(Value::as_bool).unwrap_or(false);
        let role = role_for(node.as_ref(), &library, kind, all)?;
        let recipient = match roles::recipient(role.as_str(), &directory, &state)? {
            Address::Agent(agent) => agent,
            Address::Node(_) | Address::Group(_) => {
                return Err(RoleError::Unfilled {
                    role,
                    present: roles::assigned_roles(directory.agents(), &state),
                }
                .into());
            }
        };
        let busy = WorkflowState::of(&state, &Target::Agent(recipient.name.clone()));
        match busy.as_ref().and_then(WorkflowState::active) {
            Some(workflow) if recipient != from => {
                let workflow = workflow.to_owned();
                Err(WorkflowError::RecipientLocked { recipient, workflow }.into())
            }
            _ => Ok(recipient),
        }
    }
}

/// Returns the role to which an action is routed. Pure.
fn role_for(
    node: Option<&WorkflowState>,
    library: &WorkflowLibrary,
    action: &Kind,
    all: bool,
) -> Result<Role, WorkflowError> {
    let none = || {
        let routes = library.workflows.iter().filter(|workflow| !workflow.routes.is_empty());
        let routes = routes.map(|workflow| format!("{} ({})", workflow.name, actions(workflow).join(", ")));
        WorkflowError::NoRecipient { action: action.clone(), routes: routes.collect() }
    };
    let Some((node, active)) = node.and_then(|node| Some((node, node.active()?))) else { return Err(none()) };
    let Some(workflow) = library.named(active) else { return Err(none()) };
    let Some(route) = workflow.routes.iter().find(|route| route.action == *action) else {
        let valid = actions(workflow);
        let near = suggest_similar(action.as_str(), valid.iter().map(String::as_str));
        let workflow = workflow.name.clone();
        return Err(WorkflowError::ActionNotRouted { workflow, action: action.clone(), valid, near });
    };
    match workflow.phase(route.after_phase) {
        Some(phase) if node.step() < route.after_phase && !all => Err(WorkflowError::PhaseGate {
            workflow: workflow.name.clone(),
            action: action.clone(),
            phase: route.after_phase,
            id: phase.id.clone(),
            evidence: phase.required_evidence.clone().unwrap_or_else(|| "none needed".to_owned()),
        }),
        _ => Ok(route.to),
    }
}

fn actions(workflow: &Workflow) -> Vec<String> {
    workflow.routes.iter().map(|route| route.action.to_string()).collect()
}

#[cfg(test)]
#[path = "routing_tests.rs"]
mod tests;
