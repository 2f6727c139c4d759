//! Progress of a workflow: keys of the session or of an agent's record in `state.json`.
//!
//! The protocol defines the keys. Unknown keys are retained. A value of the wrong type can only come from another
//! program and is read as the initial value.

use std::fmt;

use serde_json::{Map, Value, json};
use switchboard_core::Name;

use crate::error::WorkspaceError;
use crate::state;

/// Maximum number of recorded tool uses, as defined by the protocol. The oldest are dropped.
const MAX_INVOCATIONS: usize = 500;

/// Maximum number of recorded completed phases per workflow. The oldest are dropped.
const MAX_COMPLETED: usize = 200;

/// Maximum number of suspended workflows.
pub(crate) const MAX_SUSPENDED: usize = 16;

/// Keys of a workflow's progress that both the session and agents' records have.
const PROGRESS_KEYS: [&str; 6] = [
    "activeWorkflow",
    "activePersona",
    "currentStep",
    "activeWorkflowPhase",
    "workflowToolInvocations",
    "initialContext",
];

/// Additional keys of a workflow's progress in the session.
const SESSION_PROGRESS_KEYS: [&str; 2] = ["id", "startTime"];

/// Target of a workflow: the session or one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The session, which governs all agents without their own workflow.
    Session,
    /// One agent.
    Agent(Name),
}

impl From<Option<Name>> for Target {
    fn from(agent: Option<Name>) -> Self {
        agent.map_or(Self::Session, Self::Agent)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session => f.write_str("the session"),
            Self::Agent(name) => write!(f, "{name}"),
        }
    }
}

/// The workflow fields of the session or of an agent's record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkflowState {
    pub(crate) target: Target,
    pub(crate) fields: Map<String, Value>,
}

/// Record of a completed phase.
pub(crate) struct Completed<'a> {
    pub(crate) phase: usize,
    pub(crate) at: String,
    pub(crate) notes: &'a str,
    /// The last phase completed before this one, and the skip reason.
    ///
    /// `None` if no skip reason was given.
    pub(crate) skipped: Option<(usize, &'a str)>,
}

impl WorkflowState {
    /// Reads a target's state; returns `None` if the agent has no record.
    pub(crate) fn of(state: &Map<String, Value>, target: &Target) -> Option<Self> {
        fields_of(state, target).map(|fields| Self { target: target.clone(), fields: fields.clone() })
    }

    /// Writes the target's state back into `state.json`'s content.
    pub(crate) fn put(self, state: &mut Map<String, Value>) -> Result<(), WorkspaceError> {
        let gone = || WorkspaceError::DamagedState { problem: format!("{} has no record", self.target) };
        match &self.target {
            Target::Session => drop(state.insert("session".into(), Value::Object(self.fields))),
            Target::Agent(name) => *state::find(state, name).ok_or_else(gone)?.1 = self.fields,
        }
        Ok(())
    }

    /// Returns the state that governs an agent.
    ///
    /// This is the agent's own state if it has an active workflow, otherwise the session's state.
    pub(crate) fn governing(state: &Map<String, Value>, agent: Option<&Name>) -> Option<Self> {
        // Check before copying: this runs at every call, and usually no workflow is active.
        let is_active = |target: &Target| fields_of(state, target).and_then(active_in).is_some();
        let own = agent.map(|name| Target::Agent(name.clone())).filter(is_active);
        let target = own.or_else(|| Some(Target::Session).filter(is_active))?;
        Self::of(state, &target)
    }

    /// Returns the name of the active workflow.
    pub(crate) fn active(&self) -> Option<&str> {
        active_in(&self.fields)
    }

    /// Returns the number of completed phases.
    pub(crate) fn step(&self) -> usize {
        let step = self.fields.get("currentStep").and_then(Value::as_u64);
        step.and_then(|step| usize::try_from(step).ok()).unwrap_or(0)
    }

    pub(crate) fn set_step(&mut self, step: usize) {
        self.set("currentStep", step);
        self.set("activeWorkflowPhase", step);
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.fields.insert(key.to_owned(), value.into());
    }

    /// Returns true while the session waits for its terminals to be provisioned.
    pub(crate) fn awaits_provision(&self) -> bool {
        self.fields.get("provisioningStatus").and_then(Value::as_str) == Some("WAITING_FOR_PROVISION")
    }

    /// Returns the tools that were used in a workflow, each with the phase number.
    pub(crate) fn tools_used<'n>(&'n self, workflow: &'n str) -> impl Iterator<Item = (usize, &'n str)> {
        let used = self.fields.get("workflowToolInvocations").and_then(Value::as_array);
        used.into_iter().flatten().filter_map(move |use_| {
            let phase = use_.get("phase").and_then(Value::as_u64)?;
            let is_of_it = use_.get("workflow").and_then(Value::as_str) == Some(workflow);
            let tool = use_.get("tool").and_then(Value::as_str).filter(|_| is_of_it)?;
            Some((usize::try_from(phase).ok()?, tool))
        })
    }

    /// Records the use of a tool in the current phase; a no-op without an active workflow.
    pub(crate) fn record_tool(&mut self, tool: &str, at: String) {
        let Some(workflow) = self.active() else { return };
        let used = json!({ "workflow": workflow, "phase": self.step() + 1, "tool": tool, "calledAt": at });
        push(self.list("workflowToolInvocations"), used, MAX_INVOCATIONS);
    }

    /// Records a completed phase.
    pub(crate) fn record_completed(&mut self, workflow: &str, completed: Completed<'_>) {
        let mut entry = json!({
            "phase": completed.phase, "completedAt": completed.at, "notes": completed.notes,
        });
        if let Some((from, reason)) = completed.skipped {
            entry["skipped"] = json!({ "from": from, "reason": reason });
        }
        let all = self.fields.entry("completedPhases").or_insert(Value::Null);
        if !all.is_object() {
            *all = json!({});
        }
        if let Some(all) = all.as_object_mut() {
            let of_it = all.entry(workflow.to_owned()).or_insert_with(|| json!([]));
            push(of_it, entry, MAX_COMPLETED);
        }
    }

    /// Moves the progress of the active workflow to the list of suspended workflows.
    pub(crate) fn suspend(&mut self, at: String) {
        let keys = PROGRESS_KEYS.into_iter().chain(SESSION_PROGRESS_KEYS);
        let present_keys = keys.filter_map(|key| Some((key.to_owned(), self.fields.get(key)?.clone())));
        let mut waiting: Map<String, Value> = present_keys.collect();
        waiting.insert("suspendedAt".into(), at.into());
        // The list needs no limit here, because the caller has checked it.
        push(self.list("suspendedWorkflows"), waiting.into(), usize::MAX);
    }

    /// Returns the names of the suspended workflows. The last one is resumed first.
    pub(crate) fn suspended(&self) -> Vec<&str> {
        let waiting = self.fields.get("suspendedWorkflows").and_then(Value::as_array);
        waiting.into_iter().flatten().filter_map(waiting_name).collect()
    }

    /// Ends the active workflow and resets its progress.
    pub(crate) fn clear(&mut self) {
        for key in ["activeWorkflow", "activePersona", "initialContext"] {
            self.set(key, Value::Null);
        }
        self.set_step(0);
        self.set("workflowToolInvocations", json!([]));
    }

    /// Resumes the workflow that was suspended last; returns its name.
    ///
    /// An entry without a workflow name belongs to another program and stays in the list.
    pub(crate) fn resume(&mut self) -> Option<String> {
        let waiting = self.fields.get_mut("suspendedWorkflows").and_then(Value::as_array_mut)?;
        let last = waiting.iter().rposition(|entry| waiting_name(entry).is_some())?;
        let entry = waiting.remove(last);
        let name = waiting_name(&entry)?.to_owned();
        self.clear();
        if let Value::Object(entry) = entry {
            for key in PROGRESS_KEYS.into_iter().chain(SESSION_PROGRESS_KEYS) {
                if let Some(value) = entry.get(key) {
                    self.fields.insert(key.to_owned(), value.clone());
                }
            }
        }
        self.set("activeWorkflow", name.as_str());
        Some(name)
    }

    fn list(&mut self, key: &str) -> &mut Value {
        self.fields.entry(key).or_insert(Value::Null)
    }
}

/// Returns the workflow name in an entry of `suspendedWorkflows`.
///
/// An entry is an object or a bare name.
fn waiting_name(entry: &Value) -> Option<&str> {
    let name = entry.as_str().or_else(|| entry.get("activeWorkflow").and_then(Value::as_str));
    name.filter(|name| !name.is_empty())
}

/// Appends an entry to a list and drops the oldest entries above the limit.
///
/// A value that is not a list becomes one.
fn push(list: &mut Value, entry: Value, limit: usize) {
    let mut entries = match list.take() {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    };
    entries.push(entry);
    let over = entries.len().saturating_sub(limit);
    entries.drain(..over);
    *list = Value::Array(entries);
}

/// Returns the record of a target in the state.
fn fields_of<'s>(state: &'s Map<String, Value>, target: &Target) -> Option<&'s Map<String, Value>> {
    match target {
        Target::Session => state.get("session").and_then(Value::as_object),
        Target::Agent(name) => state::record(state, name),
    }
}

/// Returns true if any workflow is active, for the session or an agent.
pub fn is_any_workflow_active(state: &Map<String, Value>) -> bool {
    let session = fields_of(state, &Target::Session);
    let agents = ["terminals", "chatAgents"].into_iter().flat_map(|section| state::objects(state, section));
    session.into_iter().chain(agents.map(|(_, fields)| fields)).any(|fields| active_in(fields).is_some())
}

fn active_in(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("activeWorkflow").and_then(Value::as_str).filter(|name| !name.is_empty())
}
