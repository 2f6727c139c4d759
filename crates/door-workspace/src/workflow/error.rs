//! What the rules of workflows refuse, in words that a model can act on.

use switchboard_core::{AgentId, Kind};

use super::artifacts::MissingArtifact;
use super::library::SkippedWorkflow;
use super::workflow_state::Target;

/// Why a workflow was not started, continued or stopped, or why it stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowError {
    /// There is no such workflow.
    #[error("workflow '{}' is unknown; {}available: {}{}", .name.escape_debug(), did_you_mean(.near), .available.join(", "), files(.skipped))]
    Unknown {
        /// The name as given.
        name: String,
        /// Names that look like it, best first.
        near: Vec<String>,
        /// All names.
        available: Vec<String>,
        /// Files of the workspace that could not be used; it may be in one of them.
        skipped: Vec<SkippedWorkflow>,
    },
    /// The workspace describes the workflow in Markdown, but nothing here can run it.
    #[error(
        "STALE_RUNTIME: '{name}' is described in {path}, but this switchboard has no workflow of that name. Add .switchboard/workflows/{name}.json, or update switchboard"
    )]
    StaleRuntime {
        /// The name.
        name: String,
        /// The description, below the workspace.
        path: String,
    },
    /// Another workflow, or the same one, is active.
    #[error("WORKFLOW LOCK: '{active}' is active for {target} at step {step}/{}, so '{asked}' was not started. Tip: complete its phases or stop it; force=true replaces it and forgets how far it was{}", steps(*.total), if *.target == Target::Session { "; suspend=true sets it aside until the new one ends" } else { "" })]
    Locked {
        /// Where.
        target: Target,
        /// What is active.
        active: String,
        /// How many of its phases are done.
        step: usize,
        /// How many it has, where that is known.
        total: Option<usize>,
        /// What was to be started.
        asked: String,
    },
    /// Only the session keeps suspended workflows.
    #[error(
        "suspend: {target} has no place for suspended workflows, only the session has. Tip: stop its workflow first, or use force=true to replace it"
    )]
    CannotSuspend {
        /// Where.
        target: Target,
    },
    /// Too many workflows wait already.
    #[error(
        "suspend: {limit} workflows are suspended already, the most there may be. Tip: finish or stop some of them first"
    )]
    TooManySuspended {
        /// How many may wait.
        limit: usize,
    },
    /// Nothing is active.
    #[error("No active workflow to stop for {target}")]
    NothingToStop {
        /// Where.
        target: Target,
    },
    /// Another workflow than the one named is active, or none.
    #[error("workflow '{asked}' is not active for {target}: {}", match .active { Some(active) => format!("'{active}' is. Tip: complete phases of '{active}', or stop it first"), None => format!("none is. Tip: start_workflow(name=\"{asked}\")") })]
    NotActive {
        /// Where.
        target: Target,
        /// The one named.
        asked: String,
        /// The one that is active.
        active: Option<String>,
    },
    /// Phases are counted from 1.
    #[error("phase {phase} is no phase: phases are whole numbers from 1")]
    BadPhase {
        /// The number as given.
        phase: i64,
    },
    /// The workflow has fewer phases.
    #[error("phase {phase} does not exist: '{workflow}' has {total} phases")]
    NoSuchPhase {
        /// The workflow.
        workflow: String,
        /// The number as given.
        phase: usize,
        /// How many there are.
        total: usize,
    },
    /// What was given as an artifact is not there, or not in the workspace.
    #[error("PHASE {phase} INCOMPLETE: Missing required artifacts: {}. Create them inside the workspace, then complete the phase again", list(.missing))]
    MissingArtifacts {
        /// The phase.
        phase: i64,
        /// What is missing, and why it does not count.
        missing: Vec<MissingArtifact>,
    },
    /// Nothing was given, and the phase asks for something.
    #[error(
        "PHASE {phase} INCOMPLETE: Missing required artifacts: '{workflow}' asks for evidence: {evidence}. Give the path of at least one file or folder in the workspace under 'artifacts'"
    )]
    EvidenceRequired {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// What would do.
        evidence: String,
    },
    /// The phase declares artifacts that were not among those given.
    #[error("PHASE {phase} INCOMPLETE: Missing required artifacts: {}. Write what is missing and name it under 'artifacts'", .patterns.join(", "))]
    UnmatchedArtifacts {
        /// The phase.
        phase: usize,
        /// The patterns nothing matched.
        patterns: Vec<String>,
    },
    /// The phase was done before.
    #[error("phase {phase} of '{workflow}' is already completed; {}", match .next { Some(next) => format!("next is phase {next}"), None => "no phase is left, stop the workflow".to_owned() })]
    AlreadyCompleted {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The phase that is due.
        next: Option<usize>,
    },
    /// A phase before it is not done.
    #[error(
        "phase {phase} of '{workflow}' is not due: phase {due} is. Tip: complete phase {due} first, or give a skipReason that says why it can be left out"
    )]
    OutOfOrder {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The phase that is due.
        due: usize,
    },
    /// A reason that says nothing.
    #[error("skipReason is empty: say why phases can be left out, or leave the field away")]
    EmptySkipReason,
    /// A tool that belongs to the phase was not used.
    #[error("PHASE {phase} INCOMPLETE: '{workflow}' requires the tools {}, which were not used in this phase. Use them, then complete the phase again", .tools.join(", "))]
    ToolsNotUsed {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The tools.
        tools: Vec<String>,
    },
    /// A tool that is prohibited was used all the same.
    #[error("PHASE {phase} INCOMPLETE: prohibited tools were used in '{workflow}': {}. Tip: stop the workflow and start it again", .tools.join(", "))]
    ProhibitedToolsUsed {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The tools.
        tools: Vec<String>,
    },
    /// A tool is prohibited while a workflow is active.
    #[error(
        "ERR_PERSONA_VIOLATION: the tool '{tool}' must not be used while '{workflow}' is active for {target}. Tip: finish or stop the workflow first"
    )]
    ToolProhibited {
        /// The tool.
        tool: String,
        /// The workflow.
        workflow: String,
        /// Where it is active.
        target: Target,
    },
    /// Whoever provides the terminals is not ready.
    #[error(
        "PHASE {phase} INCOMPLETE: the session is waiting to be provisioned. Wait until state.json says PROVISIONED, then complete the phase again"
    )]
    Unprovisioned {
        /// The phase.
        phase: usize,
    },
    /// A text is longer than `state.json` should hold.
    #[error(
        "{field} has {bytes} bytes and the limit is {limit}: put it into a file of the workspace and give its path"
    )]
    TooLong {
        /// Which field.
        field: &'static str,
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// More artifacts than anyone looks at.
    #[error("artifacts has {given} entries and the limit is {limit}: name the folder they are in")]
    TooManyArtifacts {
        /// How many were given.
        given: usize,
        /// How many may be.
        limit: usize,
    },
    /// Nobody was named and no workflow says who is meant.
    #[error("recipient: none was given, and no active workflow says to whom '{action}' goes. Tip: name a recipient, or start a workflow that has one: {}", .ways.join(", "))]
    NoRecipient {
        /// The action.
        action: Kind,
        /// Workflows with the actions that they route.
        ways: Vec<String>,
    },
    /// Nobody was named and the workflow does not route the action.
    #[error("action '{action}' has no recipient in workflow '{workflow}'; valid actions: {}{}", if .valid.is_empty() { "none, name a recipient".to_owned() } else { .valid.join(", ") }, if .near.is_empty() { String::new() } else { format!(". Did you mean '{}'?", .near.join("' or '")) })]
    ActionNotRouted {
        /// The workflow.
        workflow: String,
        /// The action.
        action: Kind,
        /// The actions that it routes.
        valid: Vec<String>,
        /// Those that look like it.
        near: Vec<String>,
    },
    /// A phase must be done before anything is sent.
    #[error(
        "PHASE GATE: '{action}' in '{workflow}' waits for phase {phase}. Required: phase {phase} ({id}) completed. Evidence: {evidence}. Tip: complete_workflow_phase(workflow=\"{workflow}\", phase={phase}, artifacts=[…]), or set metadata.all to true to hand over everything as it is"
    )]
    PhaseGate {
        /// The workflow.
        workflow: String,
        /// The action.
        action: Kind,
        /// The phase.
        phase: usize,
        /// Its word.
        id: String,
        /// What shows that it is done.
        evidence: String,
    },
    /// The recipient is busy with a workflow of its own.
    #[error(
        "recipient '{recipient}' is locked: it is in the workflow '{workflow}'. Tip: wait until that ends, or name another recipient"
    )]
    RecipientLocked {
        /// Who.
        recipient: AgentId,
        /// In what.
        workflow: String,
    },
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("did you mean '{}'? ", near.join("' or '")),
    }
}

fn files(skipped: &[SkippedWorkflow]) -> String {
    let files = skipped.iter().map(|file| format!("{} ({})", file.path, file.problem));
    match files.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        files => format!(". Not usable: {files}"),
    }
}

fn steps(total: Option<usize>) -> String {
    total.map_or_else(|| "?".to_owned(), |total| total.to_string())
}

fn list(missing: &[MissingArtifact]) -> String {
    missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
