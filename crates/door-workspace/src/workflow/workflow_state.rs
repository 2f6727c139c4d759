//! Where a workflow stands: a few keys of the session or of an agent's record in `state.json`.
//!
//! The keys are the protocol's. Whatever else stands there is carried along; a value of the wrong type,
//! which only another program can have written, reads as its first value.

use std::fmt;

use serde_json::{Map, Value, json};
use switchboard_core::Name;

use crate::error::WorkspaceError;
use crate::state;

/// How many tool uses are remembered, as in the protocol; the oldest go first.
const MAX_INVOCATIONS: usize = 500;

/// How many completed phases are remembered for each workflow; the oldest go first.
const MAX_COMPLETED: usize = 200;

/// How many workflows may wait for another one to end.
pub(crate) const MAX_SUSPENDED: usize = 16;

/// What makes up a workflow's standing, in the session as in an agent's record.
const STANDING: [&str; 6] = [
    "activeWorkflow",
    "activePersona",
    "currentStep",
    "activeWorkflowPhase",
    "workflowToolInvocations",
    "initialContext",
];

/// What the session's standing has besides.
const SESSION_STANDING: [&str; 2] = ["id", "startTime"];

/// Whose workflow: everybody's, or one agent's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The session: everybody who has no workflow of its own.
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

/// The session or an agent's record, as far as workflows are concerned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkflowState {
    pub(crate) target: Target,
    pub(crate) fields: Map<String, Value>,
}

/// A phase that was completed, as it is remembered.
pub(crate) struct Completed<'a> {
    pub(crate) phase: usize,
    pub(crate) at: String,
    pub(crate) notes: &'a str,
    /// The phase that was done last before it, and the reason, where phases were left out.
    pub(crate) skipped: Option<(usize, &'a str)>,
}

impl WorkflowState {
    /// Reads a node out of the state; none where the agent has no record.
    pub(crate) fn of(state: &Map<String, Value>, target: &Target) -> Option<Self> {
        fields_of(state, target).map(|fields| Self { target: target.clone(), fields: fields.clone() })
    }

    /// Puts the node back into the state it came from.
    pub(crate) fn put(self, state: &mut Map<String, Value>) -> Result<(), WorkspaceError> {
        let gone = || WorkspaceError::DamagedState { problem: format!("{} has no record", self.target) };
        match &self.target {
            Target::Session => drop(state.insert("session".into(), Value::Object(self.fields))),
            Target::Agent(name) => *state::find(state, name).ok_or_else(gone)?.1 = self.fields,
        }
        Ok(())
    }

    /// The node an agent is under: its own where it has an active workflow, else the session's.
    pub(crate) fn governing(state: &Map<String, Value>, agent: Option<&Name>) -> Option<Self> {
        // Asked at every call, and mostly there is none: only what is active is worth a copy.
        let is_active = |target: &Target| fields_of(state, target).and_then(active_in).is_some();
        let own = agent.map(|name| Target::Agent(name.clone())).filter(is_active);
        let target = own.or_else(|| Some(Target::Session).filter(is_active))?;
        Self::of(state, &target)
    }

    /// The workflow that is active.
    pub(crate) fn active(&self) -> Option<&str> {
        active_in(&self.fields)
    }

    /// How many of its phases are done.
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

    /// Whether whoever provides the terminals is not ready yet.
    pub(crate) fn awaits_provision(&self) -> bool {
        self.fields.get("provisioningStatus").and_then(Value::as_str) == Some("WAITING_FOR_PROVISION")
    }

    /// The tools used in a workflow, each with the phase it was used in.
    pub(crate) fn tools_used<'n>(&'n self, workflow: &'n str) -> impl Iterator<Item = (usize, &'n str)> {
        let used = self.fields.get("workflowToolInvocations").and_then(Value::as_array);
        used.into_iter().flatten().filter_map(move |use_| {
            let phase = use_.get("phase").and_then(Value::as_u64)?;
            let is_of_it = use_.get("workflow").and_then(Value::as_str) == Some(workflow);
            let tool = use_.get("tool").and_then(Value::as_str).filter(|_| is_of_it)?;
            Some((usize::try_from(phase).ok()?, tool))
        })
    }

    /// Remembers that a tool was used in the phase that is due; nothing where no workflow is active.
    pub(crate) fn note_tool(&mut self, tool: &str, at: String) {
        let Some(workflow) = self.active() else { return };
        let used = json!({ "workflow": workflow, "phase": self.step() + 1, "tool": tool, "calledAt": at });
        push(self.list("workflowToolInvocations"), used, MAX_INVOCATIONS);
    }

    /// Remembers a completed phase.
    pub(crate) fn note_completed(&mut self, workflow: &str, completed: Completed<'_>) {
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

    /// The standing of the active workflow, taken out to wait.
    pub(crate) fn suspend(&mut self, at: String) {
        let keys = STANDING.into_iter().chain(SESSION_STANDING);
        let kept = keys.filter_map(|key| Some((key.to_owned(), self.fields.get(key)?.clone())));
        let mut waiting: Map<String, Value> = kept.collect();
        waiting.insert("suspendedAt".into(), at.into());
        // The rule that lets it wait has seen that there is room.
        push(self.list("suspendedWorkflows"), waiting.into(), usize::MAX);
    }

    /// The names of the workflows that wait, the next to go on last.
    pub(crate) fn suspended(&self) -> Vec<&str> {
        let waiting = self.fields.get("suspendedWorkflows").and_then(Value::as_array);
        waiting.into_iter().flatten().filter_map(waiting_name).collect()
    }

    /// Ends the active workflow: its standing goes back to the first one.
    pub(crate) fn clear(&mut self) {
        for key in ["activeWorkflow", "activePersona", "initialContext"] {
            self.set(key, Value::Null);
        }
        self.set_step(0);
        self.set("workflowToolInvocations", json!([]));
    }

    /// Goes on with the workflow that was suspended last, if one was; its name.
    ///
    /// An entry that names no workflow is somebody else's and stays.
    pub(crate) fn resume(&mut self) -> Option<String> {
        let waiting = self.fields.get_mut("suspendedWorkflows").and_then(Value::as_array_mut)?;
        let last = waiting.iter().rposition(|entry| waiting_name(entry).is_some())?;
        let entry = waiting.remove(last);
        let name = waiting_name(&entry)?.to_owned();
        self.clear();
        if let Value::Object(entry) = entry {
            for key in STANDING.into_iter().chain(SESSION_STANDING) {
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

/// The name in an entry of `suspendedWorkflows`: a standing, or the bare name.
fn waiting_name(entry: &Value) -> Option<&str> {
    let name = entry.as_str().or_else(|| entry.get("activeWorkflow").and_then(Value::as_str));
    name.filter(|name| !name.is_empty())
}

/// Appends to a list that keeps its newest entries. What is no list becomes one.
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

/// What the state says of a target, where it has a record.
fn fields_of<'s>(state: &'s Map<String, Value>, target: &Target) -> Option<&'s Map<String, Value>> {
    match target {
        Target::Session => state.get("session").and_then(Value::as_object),
        Target::Agent(name) => state::record(state, name),
    }
}

/// The workflow that is active.
/// Whether a workflow is active anywhere.
pub(crate) fn is_any_active(state: &Map<String, Value>) -> bool {
    let session = fields_of(state, &Target::Session);
    let agents = ["terminals", "chatAgents"].into_iter().flat_map(|section| state::objects(state, section));
    session.into_iter().chain(agents.map(|(_, fields)| fields)).any(|fields| active_in(fields).is_some())
}

fn active_in(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("activeWorkflow").and_then(Value::as_str).filter(|name| !name.is_empty())
}
