//! The verb `switchboard worker`.

mod attach;
mod inject;
mod launch;
mod list;
mod logs;
mod refusal;
mod show;

use clap::{Args, Subcommand, ValueEnum};
use door_workers::{Client, RouterError};
use serde_json::{Value, json};

pub(crate) use self::refusal::refusal;
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::person::{Consent, require_person};

/// Run agents as worker processes, prompt them and follow their output.
///
/// It needs a running `switchboard serve`. A node is written JOB/NODE, as in j7kq2m/0; JOB alone means all its nodes.
/// Each node is also an agent: `switchboard send job:j7kq2m/0 TEXT` works as well.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard worker launch --agent codex --nodes 2 --prompt 'Fix the failing tests'",
    "switchboard worker inject j7kq2m/0 'Also update the docs' --wait",
    "switchboard worker attach j7kq2m",
])]
pub(crate) struct Worker {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Launch(Box<launch::Launch>),
    /// List the jobs and their nodes (the default)
    #[command(after_long_help = examples!["switchboard worker list"])]
    List,
    /// Show one job
    #[command(after_long_help = examples!["switchboard worker status j7kq2m"])]
    Status(OneJob),
    Inject(inject::Inject),
    Attach(attach::Attach),
    Approve(Approve),
    /// Interrupt the turn that runs on a node, or on all nodes of a job
    #[command(after_long_help = examples!["switchboard worker interrupt j7kq2m/0"])]
    Interrupt(Nodes),
    Steer(Steer),
    /// List the prompts that wait in the queue
    #[command(after_long_help = examples!["switchboard worker queue j7kq2m"])]
    Queue(AnyJob),
    /// Terminate a job and its processes
    #[command(after_long_help = examples!["switchboard worker terminate j7kq2m"])]
    Terminate(OneJob),
    Logs(logs::Logs),
}

/// Selects one job.
#[derive(Debug, Args)]
pub(super) struct OneJob {
    /// The job
    job: String,
}

/// Selects one job or all.
#[derive(Debug, Args)]
struct AnyJob {
    /// The job [default: all jobs]
    job: Option<String>,
}

/// Selects one node, or all nodes of a job.
#[derive(Debug, Args)]
struct Nodes {
    /// JOB/NODE, or JOB for all its nodes
    node: String,
}

/// Add a text to the turn that runs on a node.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard worker steer j7kq2m/0 'skip the benchmarks'"])]
struct Steer {
    /// The node, JOB/NODE; of a job with one node, the job
    node: String,
    /// The text to add
    text: String,
}

/// List what agents request, or answer a request.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard worker approve",
    "switchboard worker approve a3 decline",
])]
struct Approve {
    /// The request [default: list those that wait]
    approval: Option<String>,
    /// The answer
    #[arg(value_enum, default_value = "accept")]
    decision: Decision,
    #[command(flatten)]
    consent: Consent,
}

/// The answers to an agent's request.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Decision {
    /// Approve it
    Accept,
    /// Approve it, and similar requests from now on
    AcceptForSession,
    /// Deny it; the turn continues
    Decline,
    /// Deny it; the turn ends
    Cancel,
}

impl Decision {
    fn wire_name(self) -> &'static str {
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
        Verb::Logs(args) => logs::run(args, context).await,
        Verb::Approve(args) => approve(args, context).await,
        Verb::Interrupt(args) => interrupt(&args, &context).await,
        Verb::Steer(args) => {
            let mut client = connect(&context).await?;
            let (job, node) = one_node(&mut client, &args.node).await?;
            let payload = json!({ "job_id": job, "node_id": node, "content": args.text });
            let answer = client.request("steer", &payload).await?.data;
            show::print_result(&context, &answer, format_args!("{job}/{node} has it."));
            Ok(())
        }
        Verb::Queue(args) => {
            let job = args.job.as_deref().map(job_only).transpose()?;
            let answer = ask(&context, "queue_list", json!({ "job_id": job })).await?;
            show::queue(&context, &answer);
            Ok(())
        }
        Verb::Terminate(args) => {
            let job = job_only(&args.job)?;
            let answer = ask(&context, "terminate", json!({ "job_id": job })).await?;
            let tokens = answer["total_tokens"].as_u64().unwrap_or_default();
            show::print_result(&context, &answer, format_args!("{job} has ended. It used {tokens} tokens."));
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
    let action = format!("answer {} with {}", crate::show::plain(&approval), args.decision.wire_name());
    require_person(&context, &action, args.consent.yes)?;
    let payload = json!({ "approval_id": approval, "decision": args.decision.wire_name() });
    let answer = ask(&context, "approve", payload).await?;
    show::print_result(&context, &answer, format_args!("Answered: {}.", args.decision.wire_name()));
    Ok(())
}

/// Connects to the router of the workspace.
async fn connect(context: &Context) -> Result<Client, Failure> {
    let folder = context.workspace_folder()?.join(door_workspace::FOLDER);
    let folder = switchboard_sys::files::Dir::open_root(&folder).map_err(door_workers::RouterError::from)?;
    Ok(Client::connect(&folder, Some(context.identity()?.name.as_str())).await?)
}

/// Sends one command to the router and returns its response.
async fn ask(context: &Context, command: &str, payload: Value) -> Result<Value, Failure> {
    let mut client = connect(context).await?;
    Ok(client.request(command, &payload).await?.data)
}

/// Interrupts the turn of a node, or of all running nodes of a job.
async fn interrupt(args: &Nodes, context: &Context) -> Result<(), Failure> {
    let mut client = connect(context).await?;
    let (job, node) = split(&args.node)?;
    let nodes = match node {
        Some(node) => vec![node],
        None => (0..count(&mut client, job).await?).collect(),
    };
    let (mut stopped, mut idle) = (0, None);
    for node in nodes {
        match client.request("interrupt", &json!({ "job_id": job, "node_id": node })).await {
            Ok(answer) => {
                stopped += 1;
                show::print_result(context, &answer.data, format_args!("Asked {job}/{node} to stop."));
            }
            Err(RouterError::Rejected { code, field, reason }) if code == "not_now" => {
                idle = Some(RouterError::Rejected { code, field, reason });
            }
            Err(error) => return Err(error.into()),
        }
    }
    match idle {
        Some(idle) if stopped == 0 => Err(idle.into()),
        _ => Ok(()),
    }
}

/// Returns the number of nodes of a job.
async fn count(client: &mut Client, job: &str) -> Result<u32, Failure> {
    let status = client.request("job_status", &json!({ "job_id": job })).await?.data;
    let nodes = status["nodes"].as_array().map_or(0, Vec::len);
    Ok(u32::try_from(nodes).unwrap_or(u32::MAX))
}

/// Parses `JOB/NODE`; for a job with a single node also `JOB`.
async fn one_node<'t>(client: &mut Client, text: &'t str) -> Result<(&'t str, u32), Failure> {
    let (job, node) = split(text)?;
    match node {
        Some(node) => Ok((job, node)),
        None => match count(client, job).await? {
            1 => Ok((job, 0)),
            nodes => Err(which_node(job, nodes)),
        },
    }
}

/// Builds the failure for a job with several nodes if the command needs one of them.
fn which_node(job: &str, nodes: u32) -> Failure {
    let message = format!("job '{job}' has {nodes} nodes");
    Failure::new("which_node", Exit::Usage, message)
        .hint(format!("say which, {job}/0 to {job}/{}", nodes - 1))
}

/// Parses `JOB`; rejects `JOB/NODE`.
fn job_only(text: &str) -> Result<&str, Failure> {
    match split(text)? {
        (job, None) => Ok(job),
        (job, Some(_)) => Err(Failure::new("bad_job", Exit::Usage, format!("'{text}' is one node"))
            .hint(format!("this is done with a whole job: write {job}"))),
    }
}

/// Splits `JOB/NODE` or `JOB`, with or without a leading `job:`.
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
