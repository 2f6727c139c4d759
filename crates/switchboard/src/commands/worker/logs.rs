//! The verb `switchboard worker logs`.

use clap::Args;
use door_workers::RouterError;
use switchboard_core::JobId;
use switchboard_sys::files::Dir;

use super::show::worker_text;
use super::{connect, count, split, which_node};
use crate::cli::help::examples;
use crate::cli::options::Limit;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::show::plain;

/// Maximum bytes to read. The logs of workers are bounded to less.
const LIMIT: u64 = 16 << 20;

/// Show the newest lines that a node's program wrote to stderr.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard worker logs j7kq2m/0 -n 100"])]
pub(super) struct Logs {
    /// The node, JOB/NODE; of a job with one node, the job
    node: String,
    #[command(flatten)]
    limit: Limit<50>,
}

pub(super) async fn run(args: Logs, context: Context) -> Result<(), Failure> {
    let (job, node) = split(&args.node)?;
    let unknown = |what: String| {
        Failure::new("unknown_job", Exit::NotFound, what).hint("`switchboard worker list` shows the jobs")
    };
    let job_id = JobId::parse(job).ok_or_else(|| unknown(format!("there is no job '{}'", plain(job))))?;
    // Logs can be read without a router; then only the number of nodes is unknown.
    let answer = match connect(&context).await {
        Ok(mut client) => Some(count(&mut client, job).await),
        Err(_) => None,
    };
    // The logs may still exist when the router has forgotten the job, so its rejection is only reported if there are
    // none.
    let (nodes, refusal) = match answer {
        Some(Ok(nodes)) => (Some(nodes), None),
        Some(Err(failure)) => (None, Some(failure)),
        None => (None, None),
    };
    let node = match (node, nodes) {
        (None, Some(nodes @ 2..)) => return Err(which_node(job, nodes)),
        (Some(node), Some(nodes)) if node >= nodes => {
            return Err(unknown(format!("job '{job}' has no node {node}")));
        }
        (node, _) => node.unwrap_or(0),
    };
    let root = context.workspace_folder()?.join(door_workspace::FOLDER);
    let read = || -> Result<_, RouterError> {
        let workers = Dir::open_root(&root)?.subdir("workers")?;
        let Some(folder) = workers.map(|dir| dir.subdir(job_id.as_str())).transpose()?.flatten() else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        // The rotated file has the older lines, so it comes first.
        for name in [format!("node-{node}.log.1"), format!("node-{node}.log")] {
            bytes.extend(folder.read(&name, LIMIT)?.map(|found| found.bytes).unwrap_or_default());
        }
        Ok(Some(bytes))
    };
    let log = match read()? {
        Some(log) => log,
        None if nodes.is_some() => Vec::new(),
        None => return Err(refusal.unwrap_or_else(|| unknown(format!("there is no log of {job}/{node}")))),
    };
    if log.is_empty() {
        context.printer.note(format_args!("The program of {job}/{node} has written nothing to its stderr."));
    }
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(args.limit.limit)..] {
        if context.printer.is_json() {
            context.printer.object(&serde_json::json!({ "job_id": job, "node_id": node, "line": line }));
        } else {
            context.printer.line(worker_text(&context, line));
        }
    }
    Ok(())
}
