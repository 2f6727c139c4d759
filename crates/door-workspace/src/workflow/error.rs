//! Workflow errors, with texts that a model can act on.

use switchboard_core::{AgentId, Kind};

use super::artifacts::MissingArtifact;
use super::library::SkippedWorkflow;
use super::workflow_state::Target;

/// Reason why a workflow operation was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowError {
    /// There is no workflow with this name.
    #[error("workflow '{}' is unknown; {}available: {}{}", .name.escape_debug(), did_you_mean(.near), .available.join(", "), files(.skipped))]
    Unknown {
        /// The name as given.
        name: String,
        /// Similar names, best match first.
        near: Vec<String>,
        /// The names of all workflows.
        available: Vec<String>,
        /// Workflow files that could not be used. One of them may define the requested workflow.
        skipped: Vec<SkippedWorkflow>,
    },
    /// The workflow is described in Markdown, but this program has no definition of it.
    #[error(
        "STALE_RUNTIME: '{name}' is described in {path}, but this switchboard has no workflow of that name. Add .switchboard/workflows/{name}.json, or update switchboard"
    )]
    StaleRuntime {
        /// Name of the workflow.
        name: String,
        /// Path of the description, relative to the workspace.
        path: String,
    },
    /// A workflow is already active for the target.
    #[error("WORKFLOW LOCK: '{active}' is active for {target} at step {step}/{}, so '{asked}' was not started. Tip: complete its phases or stop it; force=true replaces it and discards its progress{}", steps(*.total), if *.target == Target::Session { "; suspend=true suspends it until the new one ends" } else { "" })]
    Locked {
        /// The target of the active workflow.
        target: Target,
        /// Name of the active workflow.
        active: String,
        /// Number of completed phases of the active workflow.
        step: usize,
        /// Number of phases of the active workflow, if known.
        total: Option<usize>,
        /// Name of the workflow to start.
        asked: String,
    },
    /// The target cannot suspend workflows; only the session can.
    #[error(
        "suspend: {target} cannot suspend workflows, only the session can. Tip: stop its workflow first, or use force=true to replace it"
    )]
    CannotSuspend {
        /// The target that cannot suspend workflows.
        target: Target,
    },
    /// Too many workflows are already suspended.
    #[error(
        "suspend: {limit} workflows are suspended already, the most there may be. Tip: finish or stop some of them first"
    )]
    TooManySuspended {
        /// Maximum number of suspended workflows.
        limit: usize,
    },
    /// No workflow is active.
    #[error("No active workflow to stop for {target}")]
    NothingToStop {
        /// The target without an active workflow.
        target: Target,
    },
    /// The named workflow is not active.
    #[error("workflow '{asked}' is not active for {target}: {}", match .active { Some(active) => format!("'{active}' is. Tip: complete phases of '{active}', or stop it first"), None => format!("none is. Tip: start_workflow(name=\"{asked}\")") })]
    NotActive {
        /// The target of the request.
        target: Target,
        /// The named workflow.
        asked: String,
        /// Name of the active workflow, if any.
        active: Option<String>,
    },
    /// The phase number is not positive; phases are counted from 1.
    #[error("phase {phase} is invalid: phases are whole numbers from 1")]
    BadPhase {
        /// The phase number as given.
        phase: i64,
    },
    /// The workflow has fewer phases than the requested number.
    #[error("phase {phase} does not exist: '{workflow}' has {total} phases")]
    NoSuchPhase {
        /// Name of the recipient's workflow.
        workflow: String,
        /// The number as given.
        phase: usize,
        /// Number of phases of the workflow.
        total: usize,
    },
    /// An artifact does not exist, or is outside the workspace.
    #[error("PHASE {phase} INCOMPLETE: Missing required artifacts: {}. Create them inside the workspace, then complete the phase again", list(.missing))]
    MissingArtifacts {
        /// The phase that was to be completed.
        phase: i64,
        /// The artifacts that were rejected, with the reasons.
        missing: Vec<MissingArtifact>,
    },
    /// The phase requires evidence, but no artifact was given.
    #[error(
        "PHASE {phase} INCOMPLETE: Missing required artifacts: '{workflow}' asks for evidence: {evidence}. Give the path of at least one file or folder in the workspace under 'artifacts'"
    )]
    EvidenceRequired {
        /// The workflow.
        workflow: String,
        /// Number of the phase.
        phase: usize,
        /// The required evidence.
        evidence: String,
    },
    /// No artifact matches a pattern that the phase requires.
    #[error("PHASE {phase} INCOMPLETE: Missing required artifacts: {}. Write what is missing and name it under 'artifacts'", .patterns.join(", "))]
    UnmatchedArtifacts {
        /// The phase.
        phase: usize,
        /// The patterns without a match.
        patterns: Vec<String>,
    },
    /// The phase is already completed.
    #[error("phase {phase} of '{workflow}' is already completed; {}", match .next { Some(next) => format!("next is phase {next}"), None => "no phase remains, stop the workflow".to_owned() })]
    AlreadyCompleted {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The phase that is due; `None` if all phases are completed.
        next: Option<usize>,
    },
    /// The phase is not due, because an earlier phase is not completed.
    #[error(
        "phase {phase} of '{workflow}' is not due: phase {due} is. Tip: complete phase {due} first, or give a skipReason that says why it can be skipped"
    )]
    OutOfOrder {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The phase that is due.
        due: usize,
    },
    /// The skip reason is empty.
    #[error("skipReason is empty: give the reason for skipping phases, or omit the field")]
    EmptySkipReason,
    /// A required tool of the phase was not used.
    #[error("PHASE {phase} INCOMPLETE: '{workflow}' requires the tools {}, which were not used in this phase. Use them, then complete the phase again", .tools.join(", "))]
    ToolsNotUsed {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The required tools that were not used.
        tools: Vec<String>,
    },
    /// A prohibited tool was used.
    #[error("PHASE {phase} INCOMPLETE: prohibited tools were used in '{workflow}': {}. Tip: stop the workflow and start it again", .tools.join(", "))]
    ProhibitedToolsUsed {
        /// The workflow.
        workflow: String,
        /// The phase.
        phase: usize,
        /// The prohibited tools that were used.
        tools: Vec<String>,
    },
    /// The tool is prohibited while the workflow is active.
    #[error(
        "ERR_PERSONA_VIOLATION: the tool '{tool}' must not be used while '{workflow}' is active for {target}. Tip: finish or stop the workflow first"
    )]
    ToolProhibited {
        /// The tool.
        tool: String,
        /// The workflow.
        workflow: String,
        /// The target of the active workflow.
        target: Target,
    },
    /// The session is still waiting for its terminals to be provisioned.
    #[error(
        "PHASE {phase} INCOMPLETE: the session is waiting to be provisioned. Wait until state.json says PROVISIONED, then complete the phase again"
    )]
    Unprovisioned {
        /// The phase.
        phase: usize,
    },
    /// A text is too long to be stored in `state.json`.
    #[error(
        "{field} has {bytes} bytes and the limit is {limit}: put it into a file of the workspace and give its path"
    )]
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Size of the text in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// Too many artifacts were given.
    #[error("artifacts has {given} entries and the limit is {limit}: name the folder they are in")]
    TooManyArtifacts {
        /// Number of artifacts given.
        given: usize,
        /// Maximum number of artifacts.
        limit: usize,
    },
    /// The recipient is missing, and there is no active workflow that could route the action.
    #[error("recipient: none was given, and no active workflow routes '{action}'. Tip: name a recipient, or start a workflow that has one: {}", .routes.join(", "))]
    NoRecipient {
        /// The action.
        action: Kind,
        /// Workflows, each with the actions that it routes.
        routes: Vec<String>,
    },
    /// The recipient is missing, and the active workflow does not route the action.
    #[error("action '{action}' has no recipient in workflow '{workflow}'; valid actions: {}{}", if .valid.is_empty() { "none, name a recipient".to_owned() } else { .valid.join(", ") }, if .near.is_empty() { String::new() } else { format!(". Did you mean '{}'?", .near.join("' or '")) })]
    ActionNotRouted {
        /// The workflow.
        workflow: String,
        /// The action.
        action: Kind,
        /// The actions that the workflow routes.
        valid: Vec<String>,
        /// Similar actions that the workflow routes.
        near: Vec<String>,
    },
    /// A phase must be completed before the action may be sent.
    #[error(
        "PHASE GATE: '{action}' in '{workflow}' waits for phase {phase}. Required: phase {phase} ({id}) completed. Evidence: {evidence}. Tip: complete_workflow_phase(workflow=\"{workflow}\", phase={phase}, artifacts=[…]), or set metadata.all to true to send it without the phase"
    )]
    PhaseGate {
        /// The workflow.
        workflow: String,
        /// The action.
        action: Kind,
        /// The phase.
        phase: usize,
        /// Id of the phase.
        id: String,
        /// The required evidence.
        evidence: String,
    },
    /// The recipient is busy with its own workflow.
    #[error(
        "recipient '{recipient}' is locked: it is in the workflow '{workflow}'. Tip: wait until that ends, or name another recipient"
    )]
    RecipientLocked {
        /// The recipient.
        recipient: AgentId,
        /// The workflow.
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
