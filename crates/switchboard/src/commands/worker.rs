//! `switchboard worker`

mod attach;
mod inject;
mod launch;
mod list;
mod logs;
mod show;

use clap::{Args, Subcommand, ValueEnum};
use door_workers::Client;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Run agents as workers. Needs a running `switchboard serve`.
#[derive(Debug, Args)]
#[command(after_help = "A node is written JOB/NODE, as in j7kq2m/0; JOB alone means all its nodes.\n\
    Each node is an agent, too: `switchboard send job:j7kq2m/0 TEXT` works from everywhere.")]
pub(crate) struct Worker {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start agents: a job with one or more nodes
    Launch(Box<launch::Launch>),
    /// List the jobs and their nodes (also without a verb)
    List,
    /// Show one job
    Status(OneJob),
    /// Give a prompt to a node, or to all of a job
    Inject(inject::Inject),
    /// Follow what a job does
    Attach(attach::Attach),
    /// List what agents ask for, or answer it
    Approve(Approve),
    /// Stop the turn that runs on a node
    Interrupt(OneNode),
    /// Add to the turn that runs on a node
    Steer(Steer),
    /// List what waits
    Queue(AnyJob),
    /// End a job and its processes
    Terminate(OneJob),
    /// Show the newest lines that a node's program wrote to its stderr
    Logs(logs::Logs),
}

#[derive(Debug, Args)]
pub(super) struct OneJob {
    /// The job
    job: String,
}

#[derive(Debug, Args)]
struct AnyJob {
    /// The job [default: all]
    job: Option<String>,
}

#[derive(Debug, Args)]
struct OneNode {
    /// The node, JOB/NODE; of a job with one node, the job
    node: String,
}

#[derive(Debug, Args)]
struct Steer {
    /// The node, JOB/NODE; of a job with one node, the job
    node: String,
    /// What to add
    text: String,
}

#[derive(Debug, Args)]
struct Approve {
    /// Which [default: list those that wait]
    approval: Option<String>,
    /// The answer
    #[arg(value_enum, default_value = "accept")]
    decision: Decision,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Decision {
    /// Yes
    Accept,
    /// Yes, and to its like from now on
    AcceptForSession,
    /// No; the turn goes on
    Decline,
    /// No; the turn ends
    Cancel,
}

impl Decision {
    fn word(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::AcceptForSession => "accept_for_session",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}

pub(crate) async fn run(args: Worker, context: Context) -> Result<(), Failure> {
    match args.command.unwrap_or(Verb::List) {
        Verb::Launch(args) => launch::run(*args, context).await,
        Verb::List => list::run(context).await,
        Verb::Status(args) => list::status(args, context).await,
        Verb::Inject(args) => inject::run(args, context).await,
        Verb::Attach(args) => attach::run(args, context).await,
        Verb::Logs(args) => logs::run(&args, &context),
        Verb::Approve(args) => approve(args, context).await,
        Verb::Interrupt(args) => {
            let (job, node) = one_node(&args.node)?;
            let answer = ask(&context, "interrupt", json!({ "job_id": job, "node_id": node })).await?;
            show::done(&context, &answer, format_args!("Asked {job}/{node} to stop."));
            Ok(())
        }
        Verb::Steer(args) => {
            let (job, node) = one_node(&args.node)?;
            let payload = json!({ "job_id": job, "node_id": node, "content": args.text });
            let answer = ask(&context, "steer", payload).await?;
            show::done(&context, &answer, format_args!("{job}/{node} has it."));
            Ok(())
        }
        Verb::Queue(args) => {
            let answer = ask(&context, "queue_list", json!({ "job_id": args.job })).await?;
            show::queue(&context, &answer);
            Ok(())
        }
        Verb::Terminate(args) => {
            let answer = ask(&context, "terminate", json!({ "job_id": args.job })).await?;
            let tokens = answer["total_tokens"].as_u64().unwrap_or_default();
            show::done(&context, &answer, format_args!("{} is over. It has used {tokens} tokens.", args.job));
            Ok(())
        }
    }
}

async fn approve(args: Approve, context: Context) -> Result<(), Failure> {
    let Some(approval) = args.approval else {
        let answer = ask(&context, "approvals_list", json!({})).await?;
        show::approvals(&context, &answer);
        return Ok(());
    };
    let payload = json!({ "approval_id": approval, "decision": args.decision.word() });
    let answer = ask(&context, "approve", payload).await?;
    show::done(&context, &answer, format_args!("Answered: {}.", args.decision.word()));
    Ok(())
}

/// Connects to the router of the workspace.
async fn connect(context: &Context) -> Result<Client, Failure> {
    let folder = context.workspace_folder()?.join(door_workspace::FOLDER);
    let folder = switchboard_hub::files::Dir::open_root(&folder).map_err(door_workers::RouterError::from)?;
    let mut client = Client::connect(&folder).await?;
    if let Some(agent) = context.named()? {
        client.ask("hello", &json!({ "agent": agent.name })).await?;
    } else {
        client.ask("hello", &json!({ "agent": "human" })).await?;
    }
    Ok(client)
}

/// Asks once; what the answer says.
async fn ask(context: &Context, command: &str, payload: Value) -> Result<Value, Failure> {
    let mut client = connect(context).await?;
    Ok(client.ask(command, &payload).await?.data)
}

/// `JOB/NODE`, or `JOB` for its only node.
fn one_node(text: &str) -> Result<(&str, u32), Failure> {
    let (job, node) = split(text)?;
    Ok((job, node.unwrap_or(0)))
}

/// `JOB/NODE` or `JOB`, with or without `job:` before it.
fn split(text: &str) -> Result<(&str, Option<u32>), Failure> {
    let text = text.strip_prefix("job:").unwrap_or(text);
    match text.split_once('/') {
        None => Ok((text, None)),
        Some((job, "all")) => Ok((job, None)),
        Some((job, node)) => match node.parse() {
            Ok(node) => Ok((job, Some(node))),
            Err(_) => Err(Failure::new("bad_node", Exit::Usage, format!("'{text}' is no node"))
                .hint("write JOB/NODE, as in j7kq2m/0")),
        },
    }
}
