//! The verbs `switchboard worker list` and `status`.

use serde_json::{Value, json};

use super::{OneJob, ask, job_only, show};
use crate::context::Context;
use crate::failure::Failure;

pub(super) async fn run(context: Context) -> Result<(), Failure> {
    let answer = ask(&context, "jobs_list", json!({})).await?;
    let jobs = answer["jobs"].as_array().cloned().unwrap_or_default();
    let running = |job: &&Value| context.printer.is_json() || job["status"] == "running";
    let shown: Vec<_> = jobs.iter().filter(running).collect();
    if shown.is_empty() {
        context.printer.note("No job runs. Start one with `switchboard worker launch --agent codex`.");
    }
    for job in shown {
        show::job(&context, job);
    }
    Ok(())
}

pub(super) async fn status(args: OneJob, context: Context) -> Result<(), Failure> {
    let answer = ask(&context, "job_status", json!({ "job_id": job_only(&args.job)? })).await?;
    show::job(&context, &answer);
    Ok(())
}
