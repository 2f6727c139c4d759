//! Transition rules of workflows. Pure: each takes a state and a definition and returns a new state and a report.

use std::fmt;

use jiff::Timestamp;

use super::definition::{Phase, Workflow};
use super::error::WorkflowError;
use super::library::WorkflowLibrary;
use super::workflow_state::{Completed, MAX_SUSPENDED, Target, WorkflowState};
use crate::translate::iso;

/// Result of starting a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowStarted {
    /// The workflow that was started.
    pub workflow: Workflow,
    /// The target of the workflow.
    pub target: Target,
    /// Name of the active workflow that was replaced, if any.
    pub replaced: Option<String>,
    /// Name of the active workflow that was suspended, if any.
    pub suspended: Option<String>,
}

/// Result of completing a phase.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseCompleted {
    /// Name of the workflow that was stopped.
    pub workflow: String,
    /// Number of the completed phase, counted from 1.
    pub phase: usize,
    /// Number of phases of the workflow.
    pub total: usize,
    /// Number of artifacts found.
    pub artifacts: usize,
    /// The next phase; `None` after the last phase, which ends the workflow.
    pub next: Option<Phase>,
    /// Name of the suspended workflow that was resumed, if any.
    pub resumed: Option<String>,
}

/// Result of stopping a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowStopped {
    /// The workflow.
    pub workflow: String,
    /// The target of the workflow.
    pub target: Target,
    /// The reason for stopping.
    pub outcome: String,
    /// Name of the suspended workflow that was resumed, if any.
    pub resumed: Option<String>,
}

/// Policy for an active workflow when another workflow is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActivePolicy {
    /// Refuse the new workflow.
    Refuse,
    /// End the active workflow and discard its progress.
    Replace,
    /// Suspend the active workflow until the new workflow ends.
    Suspend,
}

/// Starts a workflow.
///
/// An active workflow whose phases are all completed counts as ended, even if it was never stopped.
pub(crate) fn start(
    node: &WorkflowState,
    workflow: &Workflow,
    library: &WorkflowLibrary,
    active_policy: ActivePolicy,
    initial_context: Option<&str>,
    now: Timestamp,
) -> Result<(WorkflowState, WorkflowStarted), WorkflowError> {
    let mut node = node.clone();
    let target = node.target.clone();
    let (mut replaced, mut suspended) = (None, None);
    if let Some(active) = node.active().map(str::to_owned) {
        let total = library.named(&active).map(|active| active.phases.len());
        let is_completed = total.is_some_and(|total| node.step() >= total);
        match active_policy {
            _ if is_completed => replaced = Some(active),
            ActivePolicy::Refuse => {
                let (step, wanted) = (node.step(), workflow.name.clone());
                return Err(WorkflowError::Locked { target, active, step, total, asked: wanted });
            }
            ActivePolicy::Replace => replaced = Some(active),
            ActivePolicy::Suspend if target != Target::Session => {
                return Err(WorkflowError::CannotSuspend { target });
            }
            ActivePolicy::Suspend if node.suspended().len() >= MAX_SUSPENDED => {
                return Err(WorkflowError::TooManySuspended { limit: MAX_SUSPENDED });
            }
            ActivePolicy::Suspend => {
                node.suspend(iso(now));
                suspended = Some(active);
            }
        }
    }
    node.clear();
    node.set("activeWorkflow", workflow.name.as_str());
    node.set("activePersona", workflow.persona.as_str());
    node.set("initialContext", initial_context.map(str::to_owned));
    match target {
        Target::Session => {
            node.set("id", format!("sess_{}", now.as_millisecond()));
            node.set("status", "IN_PROGRESS");
            node.set("startTime", iso(now));
        }
        Target::Agent(_) => node.set("workflowStartTime", iso(now)),
    }
    Ok((node, WorkflowStarted { workflow: workflow.clone(), target, replaced, suspended }))
}

/// Request to complete a phase.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion<'a> {
    pub(crate) workflow: &'a Workflow,
    pub(crate) phase: usize,
    /// Number of artifacts found.
    pub(crate) artifacts: usize,
    pub(crate) notes: &'a str,
    pub(crate) skip_reason: Option<&'a str>,
}

/// Converts a phase number; returns an error if the number is not positive.
pub(crate) fn phase_number(phase: i64) -> Result<usize, WorkflowError> {
    let number = usize::try_from(phase).ok().filter(|number| *number > 0);
    number.ok_or(WorkflowError::BadPhase { phase })
}

/// Checks the requirements of a phase that do not depend on progress.
///
/// The phase must exist, and the artifacts must match the phase's requirements.
pub(crate) fn check_phase(workflow: &Workflow, number: usize, found: &[String]) -> Result<(), WorkflowError> {
    let total = workflow.phases.len();
    let none = || WorkflowError::NoSuchPhase { workflow: workflow.name.clone(), phase: number, total };
    let definition = workflow.phase(number).ok_or_else(none)?;
    if let (Some(evidence), true) = (&definition.required_evidence, found.is_empty()) {
        let (workflow, evidence) = (workflow.name.clone(), evidence.clone());
        return Err(WorkflowError::EvidenceRequired { workflow, phase: number, evidence });
    }
    let unmatched = definition.artifacts.iter().filter(|glob| !found.iter().any(|path| glob.is_match(path)));
    let patterns: Vec<String> = unmatched.map(|glob| glob.as_str().to_owned()).collect();
    if patterns.is_empty() {
        Ok(())
    } else {
        Err(WorkflowError::UnmatchedArtifacts { phase: number, patterns })
    }
}

/// Completes a phase whose artifacts were found. Completing the last phase ends the workflow.
pub(crate) fn complete(
    node: &WorkflowState,
    completion: Completion<'_>,
    now: Timestamp,
) -> Result<(WorkflowState, PhaseCompleted), WorkflowError> {
    let Completion { workflow, phase, .. } = completion;
    let name = || workflow.name.clone();
    if node.active() != Some(&workflow.name) {
        let (target, active) = (node.target.clone(), node.active().map(str::to_owned));
        return Err(WorkflowError::NotActive { target, asked: name(), active });
    }
    let (step, total) = (node.step(), workflow.phases.len());
    if phase <= step {
        let next = Some(step + 1).filter(|next| *next <= total);
        return Err(WorkflowError::AlreadyCompleted { workflow: name(), phase, next });
    }
    let skip_reason = completion.skip_reason.map(str::trim);
    if skip_reason == Some("") {
        return Err(WorkflowError::EmptySkipReason);
    }
    if phase != step + 1 && skip_reason.is_none() {
        return Err(WorkflowError::OutOfOrder { workflow: name(), phase, due: step + 1 });
    }
    check_tools(node, completion, skip_reason.is_some())?;
    if node.awaits_provision() {
        return Err(WorkflowError::Unprovisioned { phase });
    }
    let mut node = node.clone();
    let skipped = skip_reason.map(|reason| (step, reason));
    node.record_completed(
        &workflow.name,
        Completed { phase, at: iso(now), notes: completion.notes, skipped },
    );
    node.set_step(phase);
    let next = workflow.phase(phase + 1).cloned();
    let resumed = match next {
        Some(_) => None,
        None => end(&mut node, &format!("Completed {}", workflow.name), now),
    };
    let artifacts = completion.artifacts;
    Ok((node, PhaseCompleted { workflow: name(), phase, total, artifacts, next, resumed }))
}

/// Checks that the phase's required tools were used and that no prohibited tool was used.
///
/// With a skip reason, the required tools are not checked.
fn check_tools(
    node: &WorkflowState,
    completion: Completion<'_>,
    is_skipped: bool,
) -> Result<(), WorkflowError> {
    let Completion { workflow, phase, .. } = completion;
    let used: Vec<(usize, &str)> = node.tools_used(&workflow.name).collect();
    let required = workflow.phase(phase).map(|phase| phase.required_tools.as_slice()).unwrap_or_default();
    let unused = required.iter().filter(|tool| !used.contains(&(phase, tool.as_str())));
    let tools: Vec<String> = unused.cloned().collect();
    if !tools.is_empty() && !is_skipped {
        return Err(WorkflowError::ToolsNotUsed { workflow: workflow.name.clone(), phase, tools });
    }
    let was_used = |tool: &&String| used.iter().any(|(_, used)| used == tool);
    let tools: Vec<String> = workflow.prohibited_tools.iter().filter(was_used).cloned().collect();
    if !tools.is_empty() {
        return Err(WorkflowError::ProhibitedToolsUsed { workflow: workflow.name.clone(), phase, tools });
    }
    Ok(())
}

/// Stops the active workflow and resumes the workflow that was suspended last.
pub(crate) fn stop(
    node: &WorkflowState,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(WorkflowState, WorkflowStopped), WorkflowError> {
    let Some(workflow) = node.active().map(str::to_owned) else {
        return Err(WorkflowError::NothingToStop { target: node.target.clone() });
    };
    let outcome = reason.map(str::trim).filter(|reason| !reason.is_empty()).unwrap_or("Stopped").to_owned();
    let mut node = node.clone();
    let resumed = end(&mut node, &outcome, now);
    let target = node.target.clone();
    Ok((node, WorkflowStopped { workflow, target, outcome, resumed }))
}

/// Checks whether an active workflow allows a tool.
pub(crate) fn check_tool(node: &WorkflowState, workflow: &Workflow, tool: &str) -> Result<(), WorkflowError> {
    if workflow.prohibited_tools.iter().any(|prohibited| prohibited == tool) {
        return Err(WorkflowError::ToolProhibited {
            tool: tool.to_owned(),
            workflow: workflow.name.clone(),
            target: node.target.clone(),
        });
    }
    Ok(())
}

fn end(node: &mut WorkflowState, outcome: &str, now: Timestamp) -> Option<String> {
    node.clear();
    node.set("endTime", iso(now));
    node.set("lastOutcome", outcome);
    if node.target != Target::Session {
        return None;
    }
    let resumed = node.resume();
    node.set("status", if resumed.is_some() { "IN_PROGRESS" } else { "IDLE" });
    resumed
}

impl fmt::Display for WorkflowStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Workflow { name, persona, phases, .. } = &self.workflow;
        write!(f, "Workflow '{name}' started for {}, {} phases.", self.target, phases.len())?;
        if let Some(replaced) = &self.replaced {
            write!(f, " '{replaced}' was replaced.")?;
        }
        if let Some(suspended) = &self.suspended {
            write!(f, " '{suspended}' waits until it ends.")?;
        }
        write!(f, "\nPersona: {persona}")?;
        phases.first().map_or(Ok(()), |phase| write!(f, "\nStep 1: {}", phase.instruction))
    }
}

impl fmt::Display for PhaseCompleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workflow, phase, artifacts, .. } = self;
        write!(f, "PHASE {phase} COMPLETE: {workflow} ({artifacts} artifacts validated)")?;
        match (&self.next, &self.resumed) {
            (Some(next), _) => write!(f, "\nStep {}: {}", phase + 1, next.instruction),
            (None, None) => f.write_str(" (Workflow Auto-Stopped)"),
            (None, Some(resumed)) => write!(f, " (Workflow Auto-Stopped)\nResumed: {resumed}"),
        }
    }
}

impl fmt::Display for WorkflowStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workflow '{}' stopped for {}: {}", self.workflow, self.target, self.outcome)?;
        self.resumed.as_ref().map_or(Ok(()), |resumed| write!(f, "\nResumed: {resumed}"))
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
