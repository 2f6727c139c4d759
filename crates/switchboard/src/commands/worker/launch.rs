//! The verb `switchboard worker launch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use door_workers::wire::command::AgentKind;
use serde_json::{Map, Value, json};

use super::{connect, show};
use crate::cli::help::examples;
use crate::cli::values::{nonzero_duration, number};
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Launch a job: one or more agents as nodes.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard worker launch --agent codex --prompt 'Fix the failing tests'",
    "switchboard worker launch --agent claude --nodes 3 --folders worktree --timeout 30m",
    "switchboard worker launch --agent command -- ./review.sh --strict",
])]
pub(super) struct Launch {
    /// The kind of agent: codex, codex-exec, claude, gemini, opencode, goose, acp, command or echo
    #[arg(long, value_name = "AGENT")]
    agent: String,

    /// Launch this many nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u32>)]
    nodes: u32,

    /// Send a first prompt to every node
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,

    /// Set standing instructions
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,

    /// Name the nodes as agents [default: job-ID-0, job-ID-1 …]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Start the program in this folder [default: the workspace]
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,

    /// Choose whether the nodes share that folder
    #[arg(long, value_enum, default_value = "shared")]
    folders: Folders,

    /// Choose the model, where the agent supports it
    #[arg(long)]
    model: Option<String>,

    /// Set what the agent may do without approval, in its own terms, such as `workspace-write`
    #[arg(long, value_name = "MODE")]
    sandbox: Option<String>,

    /// Set when the agent requests approval, in its own terms, such as `untrusted`
    #[arg(long, value_name = "POLICY")]
    ask: Option<String>,

    /// Choose how its requests for approval are answered
    #[arg(long, value_enum, default_value = "ask")]
    approvals: Approvals,

    /// Choose how a `command` gets its prompt
    #[arg(long, value_enum, default_value = "stdin")]
    input: Input,

    /// Stop a turn that runs longer than this
    #[arg(long, value_name = "DURATION", value_parser = nonzero_duration)]
    timeout: Option<Duration>,

    /// Stop when the job has used this many tokens
    #[arg(long, value_name = "N", value_parser = number::<u64>)]
    budget: Option<u64>,

    /// Set a variable of the program: NAME=VALUE, or NAME to copy it from here (repeatable)
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// The program and its arguments, after `--`; needed for acp and command
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// Where the nodes of a job work.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Folders {
    /// All in the same folder
    Shared,
    /// Each in its own empty folder
    PerNode,
    /// Each in its own Git worktree
    Worktree,
}

/// How a `command` gets its prompt.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Input {
    /// On stdin, which is then closed
    Stdin,
    /// As the last argument
    Argument,
}

/// How an agent's requests for approval are answered.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Approvals {
    /// You decide, with `worker approve`
    Ask,
    /// Deny all
    Deny,
    /// Allow all
    Allow,
}

pub(super) async fn run(args: Launch, context: Context) -> Result<(), Failure> {
    if AgentKind::from_name(&args.agent).is_none() {
        let known = AgentKind::ALL.map(AgentKind::as_str).join(", ");
        let message = format!("no agent is called '{}'", args.agent);
        return Err(Failure::new("unknown_agent", Exit::Usage, message).hint(format!("one of {known}")));
    }
    let payload = payload(&args)?;
    let mut client = connect(&context).await?;
    let launched = client.request("launch", &payload).await.map_err(|error| match Failure::from(error) {
        failure if failure.exit == Exit::Usage => {
            failure.hint("`switchboard worker launch --help` lists the options")
        }
        failure => failure,
    })?;
    show::launched(&context, &launched.data);
    Ok(())
}

/// Returns the value of an environment variable of this process, because that of the router may differ.
fn set_here(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|error| match error {
        std::env::VarError::NotPresent => bad_variable(format!("{name} is not set here")),
        std::env::VarError::NotUnicode(_) => bad_variable(format!("{name} is not text")),
    })
}

fn bad_variable(message: String) -> Failure {
    Failure::new("bad_variable", Exit::Usage, message)
        .hint("write NAME=VALUE, or NAME for one that is set here")
}

fn payload(args: &Launch) -> Result<Value, Failure> {
    let mut env = Map::new();
    for variable in &args.env {
        let (name, value) = match variable.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (variable.as_str(), set_here(variable)?),
        };
        if name.is_empty() {
            return Err(bad_variable(format!("'{variable}' has no name")));
        }
        env.insert(name.to_owned(), json!(value));
    }
    let cwd = match &args.cwd {
        None => None,
        Some(folder) => Some(std::path::absolute(folder).map_err(anyhow::Error::from)?),
    };
    let folders = match args.folders {
        Folders::Shared => "shared",
        Folders::PerNode => "per_node",
        Folders::Worktree => "worktree",
    };
    let approvals = match args.approvals {
        Approvals::Ask => "ask",
        Approvals::Deny => "deny",
        Approvals::Allow => "allow",
    };
    // The router counts whole seconds, so round up.
    let turn_seconds = args.timeout.map(|timeout| timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0));
    let input = match args.input {
        Input::Stdin => "stdin",
        Input::Argument => "argument",
    };
    let mut payload = json!({
        "agent": args.agent,
        "nodes": args.nodes,
        "folders": folders,
        "approvals": approvals,
        "input": input,
        "program": args.program,
        "env": env,
        "limits": { "turn_seconds": turn_seconds, "total_tokens": args.budget },
    });
    let optional = [
        ("prompt", args.prompt.clone()),
        ("instructions", args.instructions.clone()),
        ("name", args.name.clone()),
        ("cwd", cwd.map(|cwd| cwd.display().to_string())),
        ("model", args.model.clone()),
        ("sandbox", args.sandbox.clone()),
        ("approval_policy", args.ask.clone()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            payload[name] = json!(value);
        }
    }
    Ok(payload)
}
