//! `switchboard worker launch`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use door_workers::wire::command::AgentKind;
use serde_json::{Map, Value, json};

use super::{connect, show};
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Start agents: a job with one or more nodes.
#[derive(Debug, Args)]
pub(super) struct Launch {
    /// codex, codex-exec, claude, gemini, opencode, goose, acp, command or echo
    #[arg(long, value_name = "AGENT")]
    agent: String,

    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,

    /// A first prompt for every node
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,

    /// Standing instructions
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,

    /// What the nodes are called as agents [default: job-ID-0, job-ID-1 …]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The folder to work in [default: the workspace]
    #[arg(long, value_name = "DIR")]
    cd: Option<PathBuf>,

    /// Whether the nodes share that folder
    #[arg(long, value_enum, default_value = "shared")]
    folders: Folders,

    /// The model, for agents that let it be chosen
    #[arg(long)]
    model: Option<String>,

    /// The agent's own word for what it may do unasked, as in `workspace-write`
    #[arg(long, value_name = "WORD")]
    sandbox: Option<String>,

    /// The agent's own word for when it asks, as in `untrusted`
    #[arg(long, value_name = "WORD")]
    ask: Option<String>,

    /// What becomes of its questions
    #[arg(long, value_enum, default_value = "ask")]
    approvals: Approvals,

    /// How a `command` gets its prompt: on its stdin, or as its last argument
    #[arg(long, value_enum, default_value = "stdin")]
    input: Input,

    /// Most seconds that a turn may take
    #[arg(long, value_name = "S")]
    timeout: Option<u32>,

    /// Most tokens that the job may use
    #[arg(long, value_name = "N")]
    budget: Option<u64>,

    /// A variable of the program, NAME=VALUE, or NAME for the one that is set here
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// The program and its arguments, after `--`: needed for acp and command
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Folders {
    /// All in the same folder
    Shared,
    /// Each in an empty folder of its own
    PerNode,
    /// Each in a git worktree of its own
    Worktree,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Input {
    /// On its stdin, which then ends
    Stdin,
    /// As its last argument
    Argument,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Approvals {
    /// You decide, with `worker approve`
    Ask,
    /// Always no
    Deny,
    /// Always yes
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
    let launched = client.ask("launch", &payload).await.map_err(|error| match Failure::from(error) {
        failure if failure.exit == Exit::Usage => {
            failure.hint("`switchboard worker launch --help` lists what can be said")
        }
        failure => failure,
    })?;
    show::launched(&context, &launched.data);
    Ok(())
}

/// The value of a variable in this process: the router may have been started with another.
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
    let cwd = match &args.cd {
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
        "limits": { "turn_seconds": args.timeout, "total_tokens": args.budget },
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
