//! The verb `switchboard workflow`.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use door_workspace::{Artifact, CompletePhase, StartWorkflow, Target, Workspace};
use serde_json::{Value, json};
use switchboard_actions as actions;
use switchboard_core::Name;

use crate::cli::help::examples;
use crate::cli::values::number;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Run a workflow, whose phases each need evidence to complete.
///
/// A workflow belongs to the session, which means to everyone, or to one agent.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard workflow list",
    "switchboard workflow start challenge --context 'the retry design'",
])]
pub(crate) struct Workflow {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the workflows that can be started
    #[command(after_long_help = examples!["switchboard workflow list"])]
    List,
    /// Start a workflow
    #[command(after_long_help = examples![
        "switchboard workflow start challenge --context 'the retry design'",
        "switchboard workflow start challenge --agent codex --suspend",
    ])]
    Start {
        /// The workflow
        #[arg(value_name = "WORKFLOW")]
        name: String,
        /// Describe what it is about
        #[arg(long, value_name = "TEXT")]
        context: Option<String>,
        /// The agent that the workflow belongs to [default: everyone]
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Replace the active workflow and discard its progress
        #[arg(long, conflicts_with = "suspend")]
        force: bool,
        /// Suspend the active workflow until this one ends
        #[arg(long)]
        suspend: bool,
    },
    /// Show active workflows and their next phase (the default)
    #[command(after_long_help = examples!["switchboard workflow state"])]
    State,
    /// Complete a phase
    #[command(after_long_help = examples![
        "switchboard workflow complete challenge 1 --artifact plan.md --note 'two options compared'",
    ])]
    Complete {
        /// The workflow
        workflow: String,
        /// The phase, counted from 1
        #[arg(allow_negative_numbers = true, value_parser = number::<i64>)]
        phase: i64,
        /// Name a file or folder of the workspace as evidence (repeatable)
        #[arg(long = "artifact", value_name = "PATH")]
        artifacts: Vec<String>,
        /// Add a note; other agents see it
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
        /// Explain why earlier phases or required tools are skipped
        #[arg(long, value_name = "TEXT")]
        skip_reason: Option<String>,
        /// The agent that the workflow belongs to [default: everyone]
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// Stop the active workflow
    #[command(after_long_help = examples!["switchboard workflow stop --reason 'no longer needed'"])]
    Stop {
        /// Give a reason
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// The agent that the workflow belongs to [default: everyone]
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
}

pub(crate) async fn run(args: Workflow, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    match args.command.unwrap_or(Verb::State) {
        Verb::List => list(&workspace, &context).await?,
        Verb::State => state(&workspace, &context).await?,
        Verb::Start { name, context: initial_context, agent, force, suspend } => {
            let request = StartWorkflow { name, initial_context, target: owner(agent)?, force, suspend };
            let started = actions::start_workflow(&workspace, request)
                .await
                .map_err(|error| Failure::of_action("start_workflow", error))?;
            print(&context, &started, || {
                json!({
                    "workflow": started.workflow.name,
                    "agent": agent_of(&started.target),
                    "phases": started.workflow.phases.len(),
                    "replaced": started.replaced,
                    "suspended": started.suspended,
                    "next": started.workflow.phase(1),
                })
            });
        }
        Verb::Complete { workflow, phase, artifacts, note, skip_reason, agent } => {
            let artifacts = artifacts.into_iter().map(|path| artifact(path, &context));
            let artifacts = artifacts.collect::<Result<_, _>>()?;
            let request =
                CompletePhase { workflow, phase, artifacts, notes: note, skip_reason, target: owner(agent)? };
            let completed = actions::complete_phase(&workspace, request)
                .await
                .map_err(|error| Failure::of_action("complete_phase", error))?;
            print(&context, &completed, || {
                json!({
                    "workflow": completed.workflow,
                    "phase": completed.phase,
                    "phases": completed.total,
                    "artifacts": completed.artifacts,
                    "next": completed.next,
                    "resumed": completed.resumed,
                })
            });
        }
        Verb::Stop { reason, agent } => {
            let stopped = actions::stop_workflow(&workspace, reason, owner(agent)?)
                .await
                .map_err(|error| Failure::of_action("stop_workflow", error))?;
            print(&context, &stopped, || {
                json!({
                    "workflow": stopped.workflow,
                    "agent": agent_of(&stopped.target),
                    "outcome": stopped.outcome,
                    "resumed": stopped.resumed,
                })
            });
        }
    }
    workspace.close().await;
    Ok(())
}

/// Parses the agent that a workflow belongs to.
fn owner(agent: Option<String>) -> Result<Option<Name>, Failure> {
    actions::workflow_owner(agent.as_deref()).map_err(|error| Failure::of_action("start_workflow", error))
}

/// Resolves a file relative to the current folder, or else to the workspace.
fn artifact(path: String, context: &Context) -> Result<Artifact, Failure> {
    let current_folder = std::env::current_dir().map_err(anyhow::Error::from)?;
    let is_elsewhere = current_folder != context.workspace_folder()?;
    let absolute = current_folder.join(&path);
    let path = if is_elsewhere && absolute.exists() { absolute.display().to_string() } else { path };
    Ok(Artifact { path, description: None })
}

fn agent_of(target: &Target) -> Option<String> {
    match target {
        Target::Session => None,
        Target::Agent(name) => Some(name.to_string()),
    }
}

/// Prints the protocol's text for people, or a JSON object for programs.
fn print(context: &Context, text: &impl std::fmt::Display, object: impl FnOnce() -> Value) {
    if context.printer.is_json() {
        context.printer.object(&object());
    } else {
        context.printer.line(show::plain(&text.to_string()));
    }
}

async fn list(workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let library = actions::list_workflows(workspace)
        .await
        .map_err(|error| Failure::of_action("list_workflows", error))?;
    for workflow in &library.workflows {
        if context.printer.is_json() {
            context.printer.object(workflow);
        } else {
            let phases: Vec<&str> = workflow.phases.iter().map(|phase| phase.id.as_str()).collect();
            let text = format!("{}: {}\n    {}", workflow.name, workflow.description, phases.join(" → "));
            context.printer.line(show::plain(&text));
        }
    }
    for file in library.skipped {
        let text = format!("Not usable: .switchboard/{}: {}", file.path, file.problem);
        context.printer.note(show::plain(&text));
    }
    Ok(())
}

async fn state(workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let state = actions::workflow_state(workspace)
        .await
        .map_err(|error| Failure::of_action("workflow_state", error))?;
    if context.printer.is_json() {
        context.printer.object(&state);
        return Ok(());
    }
    let summary = &state["summary"];
    let agents = summary["agents"].as_object().into_iter().flatten();
    let agents = agents.map(|(name, entry)| (name.as_str(), entry));
    let mut is_idle = true;
    for (owner, entry) in [("session", &summary["session"])].into_iter().chain(agents) {
        if let Some(text) = standing_text(owner, entry) {
            context.printer.line(show::plain(&text));
            is_idle = false;
        }
    }
    for name in summary["suspended"].as_array().into_iter().flatten().rev() {
        let text = format!("suspended: {}", name.as_str().unwrap_or_default());
        context.printer.line(show::plain(&text));
    }
    if is_idle {
        context.printer.note("No workflow is active; `switchboard workflow list` lists those there are.");
    }
    Ok(())
}

/// Describes an active workflow in one line, and its next phase in further lines; returns `None` if no workflow is
/// active.
fn standing_text(owner: &str, state: &Value) -> Option<String> {
    let workflow = state["workflow"].as_str()?;
    let total = state["total"].as_u64().map_or_else(|| "?".to_owned(), |total| total.to_string());
    let mut text = format!("{owner}: {workflow}, {}/{total} phases done", state["step"]);
    let next = &state["next"];
    if let (Some(id), Some(instruction)) = (next["id"].as_str(), next["instruction"].as_str()) {
        let _ = write!(text, "\n    next: {id}: {instruction}");
    }
    if let Some(evidence) = next["requiredEvidence"].as_str() {
        let _ = write!(text, "\n    evidence: {evidence}");
    }
    let tools: Vec<&str> =
        next["requiredTools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !tools.is_empty() {
        let _ = write!(text, "\n    tools: {}", tools.join(", "));
    }
    Some(text)
}
