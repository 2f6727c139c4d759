//! Reports on workflows: the whole state, a summary, and the active rules.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use switchboard_core::{AgentId, Name};

use super::library::WorkflowLibrary;
use super::workflow_state::{Target, WorkflowState};
use crate::error::WorkspaceError;
use crate::state;
use crate::workspace::{Workspace, blocking};

/// Parts of keys whose values are redacted as secrets. `_` and `-` in keys are ignored.
const SECRET: [&str; 7] = ["apikey", "password", "secret", "token", "authorization", "cookie", "privatekey"];

/// Replacement for a redacted secret.
const REDACTED: &str = "[REDACTED]";

impl Workspace {
    /// Returns `state.json` with secrets redacted and with a `summary` of the workflows.
    pub async fn workflow_state(&self) -> Result<Value, WorkspaceError> {
        let (file, library) = (self.state().clone(), self.workflow_library().await?);
        let mut state = Arc::unwrap_or_clone(blocking(move || file.read_all()).await?);
        let summary = summary(&state, &library);
        redact_state(&mut state);
        state.insert("summary".into(), summary);
        Ok(state.into())
    }

    /// Returns the rules of an agent's governing workflow, as text for a model.
    pub async fn active_rules(&self, agent: Option<&AgentId>) -> Result<String, WorkspaceError> {
        let (now, library) = (self.snapshot().await?, self.workflow_library().await?);
        let agent = now.current_name(agent.map(|agent| &agent.name));
        Ok(rules_text(WorkflowState::governing(&now.state, agent.as_ref()).as_ref(), &library))
    }
}

fn rules_text(node: Option<&WorkflowState>, library: &WorkflowLibrary) -> String {
    let Some((node, active)) = node.and_then(|node| Some((node, node.active()?))) else {
        return "No active workflow. Tools are not restricted; start_workflow starts one.".to_owned();
    };
    let mut text = format!("[PROTOCOL STATUS: {} WORKFLOW ACTIVE]", active.to_uppercase());
    let Some(workflow) = library.named(active) else {
        text.push_str("\nThis workflow is unknown here; stop_workflow ends it.");
        return text;
    };
    let restricted = match workflow.prohibited_tools.as_slice() {
        [] => "none".to_owned(),
        tools => tools.join(", "),
    };
    let _ = write!(text, "\n[RESTRICTED MCP TOOLS: {restricted}]\n{}", workflow.persona);
    if let Some(phase) = workflow.phase(node.step() + 1) {
        let total = workflow.phases.len();
        let _ = write!(text, "\nStep {}/{total} ({}): {}", node.step() + 1, phase.id, phase.instruction);
    }
    text
}

/// Summarizes the active workflows of the session and of each agent.
fn summary(state: &Map<String, Value>, library: &WorkflowLibrary) -> Value {
    let session = WorkflowState::of(state, &Target::Session);
    let names = ["terminals", "chatAgents"].into_iter().flat_map(|section| state::objects(state, section));
    let agents: Map<String, Value> = names
        .filter_map(|(name, _)| {
            let node = WorkflowState::of(state, &Target::Agent(Name::parse(name).ok()?))?;
            Some((name.clone(), progress(&node, library)?))
        })
        .collect();
    let skipped: Vec<Value> =
        library.skipped.iter().map(|file| json!({ "path": file.path, "problem": file.problem })).collect();
    json!({
        "session": session.as_ref().and_then(|node| progress(node, library)),
        "suspended": session.as_ref().map(WorkflowState::suspended).unwrap_or_default(),
        "agents": agents,
        "unusableWorkflowFiles": skipped,
    })
}

/// Summarizes the progress of one workflow; returns `None` if no workflow is active.
fn progress(node: &WorkflowState, library: &WorkflowLibrary) -> Option<Value> {
    let active = node.active()?;
    let workflow = library.named(active);
    Some(json!({
        "workflow": active,
        "step": node.step(),
        "total": workflow.map(|workflow| workflow.phases.len()),
        "next": workflow.and_then(|workflow| workflow.phase(node.step() + 1)),
        "prohibitedTools": workflow.map(|workflow| workflow.prohibited_tools.as_slice()).unwrap_or_default(),
    }))
}

/// Redacts secrets in the state.
///
/// In the sections of agents and teams, the keys are names and are not checked.
fn redact_state(state: &mut Map<String, Value>) {
    for (key, value) in state {
        match (key.as_str(), value) {
            ("terminals" | "chatAgents" | "teams", Value::Object(records)) => {
                records.values_mut().for_each(redact);
            }
            (key, value) => redact_field(key, value),
        }
    }
}

/// Redacts the values of secret keys, at any depth.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| redact_field(key, value)),
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn redact_field(key: &str, value: &mut Value) {
    let plain = key.to_ascii_lowercase().replace(['_', '-'], "");
    if SECRET.iter().any(|secret| plain.contains(secret)) {
        *value = REDACTED.into();
    } else {
        redact(value);
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
