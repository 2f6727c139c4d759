//! `switchboard worker logs`

use clap::Args;
use switchboard_core::JobId;
use switchboard_hub::files::Dir;

use super::split;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::show::plain;

/// The logs of workers are bounded to less than this.
const LIMIT: u64 = 16 << 20;

/// Show the newest lines that a node's program wrote to its stderr.
#[derive(Debug, Args)]
pub(super) struct Logs {
    /// The node, JOB/NODE; of a job with one node, the job
    node: String,
    /// How many lines
    #[arg(short = 'n', long, default_value_t = 50)]
    lines: usize,
}

pub(super) fn run(args: &Logs, context: &Context) -> Result<(), Failure> {
    let (job, node) = split(&args.node)?;
    let node = node.unwrap_or(0);
    let unknown = || {
        Failure::new("unknown_job", Exit::NotFound, format!("there is no log of {job}/{node}"))
            .hint("`switchboard worker list` shows the jobs")
    };
    let job_id = JobId::parse(job).ok_or_else(unknown)?;
    let root = context.workspace_folder()?.join(door_workspace::FOLDER);
    let read = || -> Result<_, door_workers::RouterError> {
        let workers = Dir::open_root(&root)?.subdir("workers")?;
        let Some(folder) = workers.map(|dir| dir.subdir(job_id.as_str())).transpose()?.flatten() else {
            return Ok(None);
        };
        Ok(folder.read(&format!("node-{node}.log"), LIMIT)?)
    };
    let Some(log) = read()? else { return Err(unknown()) };
    let text = String::from_utf8_lossy(&log.bytes);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(args.lines)..] {
        if context.printer.is_json() {
            context.printer.object(&serde_json::json!({ "job_id": job, "node_id": node, "line": line }));
        } else {
            context.printer.line(plain(line));
        }
    }
    Ok(())
}
