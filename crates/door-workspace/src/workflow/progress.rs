//! Starts, advances and stops workflows: applies [`rules`] under the lock of `state.json`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use switchboard_core::{AgentId, AgentRecord, Name, ResolveError, suggest_similar};
use switchboard_hub::HubError;
use switchboard_sys::files::{Dir, FileError};

use super::artifacts::{self, Artifact};
use super::definition::{Workflow, normalize_name};
use super::error::WorkflowError;
use super::library::WorkflowLibrary;
use super::rules::{self, ActivePolicy, Completion, PhaseCompleted, WorkflowStarted, WorkflowStopped};
use super::workflow_state::{Target, WorkflowState};
use crate::error::WorkspaceError;
use crate::state::{Change, write_agent};
use crate::translate::iso;
use crate::tree::Tree;
use crate::workspace::{Workspace, blocking};

/// Maximum length in bytes of a text in `state.json`.
///
/// The limit is low because every program reads the whole file.
const MAX_TEXT: usize = 32 << 10;

/// A request to start a workflow.
#[derive(Debug, Clone, Default)]
pub struct StartWorkflow {
    /// Name or alias of the workflow, in any spelling.
    pub name: String,
    /// The subject of the work.
    pub initial_context: Option<String>,
    /// The agent for which the workflow is started; the session if absent.
    pub target: Option<Name>,
    /// True to replace an active workflow and discard the progress of that workflow.
    pub force: bool,
    /// True to suspend the session's active workflow until the new workflow ends.
    ///
    /// Takes precedence over `force`.
    pub suspend: bool,
}

/// A request to complete a phase.
#[derive(Debug, Clone, Default)]
pub struct CompletePhase {
    /// The workflow, which must be active.
    pub workflow: String,
    /// Number of the phase, counted from 1.
    pub phase: i64,
    /// The artifacts that prove the completion.
    pub artifacts: Vec<Artifact>,
    /// Notes on the work.
    pub notes: Option<String>,
    /// The reason why earlier phases or required tools are skipped.
    pub skip_reason: Option<String>,
    /// The agent that has the workflow; the session if absent.
    pub target: Option<Name>,
}

impl Workspace {
    /// Starts a workflow for the session or for an agent.
    pub async fn start_workflow(&self, request: StartWorkflow) -> Result<WorkflowStarted, WorkspaceError> {
        check_length("initialContext", request.initial_context.as_deref())?;
        let active_policy = match (request.suspend, request.force) {
            (true, _) => ActivePolicy::Suspend,
            (false, true) => ActivePolicy::Replace,
            (false, false) => ActivePolicy::Refuse,
        };
        let (tree, name) = (self.tree().clone(), request.name);
        let (library, workflow) = blocking(move || {
            let library = WorkflowLibrary::load(tree.root());
            let workflow = find(&tree, &library, &name)?;
            create_folders(&tree, &workflow)?;
            Ok((library, workflow))
        })
        .await?;
        let context = request.initial_context;
        self.change_workflow(request.target, move |node, now, _| {
            Ok(rules::start(node, &workflow, &library, active_policy, context.as_deref(), now)?)
        })
        .await
    }

    /// Completes a phase after checking the artifacts. Completing the last phase ends the workflow.
    pub async fn complete_workflow_phase(
        &self,
        request: CompletePhase,
    ) -> Result<PhaseCompleted, WorkspaceError> {
        check_length("notes", request.notes.as_deref())?;
        check_length("skipReason", request.skip_reason.as_deref())?;
        let CompletePhase { workflow: name, phase, artifacts, notes, skip_reason, target } = request;
        let tree = self.tree().clone();
        let (workflow, phase, artifacts) = blocking(move || {
            let found = artifacts::check(tree.workspace()?.path(), phase, &artifacts)?;
            let phase = rules::phase_number(phase)?;
            let workflow = find(&tree, &WorkflowLibrary::load(tree.root()), &name)?;
            rules::check_phase(&workflow, phase, &found)?;
            Ok((workflow, phase, artifacts))
        })
        .await?;
        self.change_workflow(target, move |node, now, state| {
            let completion = Completion {
                workflow: &workflow,
                phase,
                artifacts: artifacts.len(),
                notes: notes.as_deref().unwrap_or_default(),
                skip_reason: skip_reason.as_deref(),
            };
            let completed = rules::complete(node, completion, now)?;
            record_artifacts(state, &workflow.name, phase, &artifacts, now);
            Ok(completed)
        })
        .await
    }

    /// Stops the active workflow. The session then resumes the workflow that was suspended last.
    pub async fn stop_workflow(
        &self,
        reason: Option<String>,
        target: Option<Name>,
    ) -> Result<WorkflowStopped, WorkspaceError> {
        check_length("reason", reason.as_deref())?;
        self.change_workflow(target, move |node, now, _| Ok(rules::stop(node, reason.as_deref(), now)?)).await
    }

    /// Applies a rule to a workflow's state under the lock, and writes the result.
    async fn change_workflow<T: Send + 'static>(
        &self,
        target: Option<Name>,
        rule: impl FnOnce(
            &WorkflowState,
            Timestamp,
            &mut Map<String, Value>,
        ) -> Result<(WorkflowState, T), WorkspaceError>
        + Send
        + 'static,
    ) -> Result<T, WorkspaceError> {
        let agent = match target {
            None => None,
            Some(name) => Some(self.known_agent(name).await?),
        };
        let target = Target::from(agent.as_ref().map(|agent| agent.id.name.clone()));
        let (file, now) = (self.state().clone(), self.hub().now());
        blocking(move || {
            file.change(|state| {
                // An agent that is known to the hub but missing in the file gets a record first.
                if let Some(agent) = &agent {
                    write_agent(state, agent);
                }
                let problem = || WorkspaceError::DamagedState { problem: format!("{target} has no record") };
                let node = WorkflowState::of(state, &target).ok_or_else(problem)?;
                let (node, answer) = rule(&node, now, state)?;
                node.put(state)?;
                Ok(Change::Write(answer))
            })
        })
        .await
    }

    /// Returns a registered agent of this hub, or an error that lists similar names.
    async fn known_agent(&self, name: Name) -> Result<AgentRecord, WorkspaceError> {
        let directory = self.hub().directory().await?;
        let id = AgentId::local(name);
        if let Some(record) = directory.agent(&id) {
            return Ok(record.clone());
        }
        let known: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
        let near = suggest_similar(id.name.as_str(), known.iter().map(String::as_str));
        Err(HubError::from(ResolveError::UnknownAgent { agent: id, near, known }).into())
    }
}

/// Finds a workflow by name or alias.
///
/// The error tells whether the workflow is only described in Markdown.
fn find(tree: &Tree, library: &WorkflowLibrary, text: &str) -> Result<Workflow, WorkspaceError> {
    library.find(text).cloned().map_err(|unknown| {
        let name = normalize_name(text);
        let file = format!("{name}.md");
        match tree.workspace().and_then(|workspace| is_described(&workspace, &file)) {
            Ok(true) => {
                let path = format!(".agent/workflows/{file}");
                WorkflowError::StaleRuntime { name, path }.into()
            }
            // On an error, assume that there is no description: usually the name is not a valid file name.
            Ok(false) | Err(_) => unknown.into(),
        }
    })
}

fn is_described(workspace: &Dir, file: &str) -> Result<bool, FileError> {
    let Some(agent) = workspace.subdir(".agent")? else { return Ok(false) };
    let Some(workflows) = agent.subdir("workflows")? else { return Ok(false) };
    Ok(workflows.stat(file)?.is_some_and(|stamp| stamp.is_regular))
}

/// Creates the folder for reviews if a phase requires artifacts in that folder.
fn create_folders(tree: &Tree, workflow: &Workflow) -> Result<(), WorkspaceError> {
    let mut patterns = workflow.phases.iter().flat_map(|phase| &phase.artifacts);
    if patterns.any(|pattern| pattern.as_str().starts_with(".switchboard/reviews/")) {
        tree.root().ensure_subdir("reviews")?;
    }
    Ok(())
}

/// Records the artifacts of a workflow's most recently completed phase.
fn record_artifacts(
    state: &mut Map<String, Value>,
    workflow: &str,
    phase: usize,
    artifacts: &[Artifact],
    now: Timestamp,
) {
    let entry = json!({ "phase": phase, "completedAt": iso(now), "artifacts": artifacts });
    let all = state.entry("lastCompletedArtifacts").or_insert(Value::Null);
    if !all.is_object() {
        *all = json!({});
    }
    if let Some(all) = all.as_object_mut() {
        all.insert(workflow.to_owned(), entry);
    }
}

fn check_length(field: &'static str, text: Option<&str>) -> Result<(), WorkflowError> {
    match text.map_or(0, str::len) {
        bytes if bytes > MAX_TEXT => Err(WorkflowError::TooLong { field, bytes, limit: MAX_TEXT }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
