//! The verb `switchboard worker inject`.

use std::collections::BTreeSet;

use clap::Args;
use door_workers::RouterError;
use serde_json::{Value, json};

use super::{connect, show, split};
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Send a prompt to a node, or to all nodes of a job.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard worker inject j7kq2m 'Run the tests' --wait",
    "switchboard worker inject j7kq2m/1 'Write the changelog'",
])]
pub(super) struct Inject {
    /// JOB/NODE, JOB or JOB/all
    to: String,

    /// The prompt
    text: String,

    /// Wait for the reply and print it
    #[arg(long)]
    wait: bool,
}

pub(super) async fn run(args: Inject, context: Context) -> Result<(), Failure> {
    let (job, node) = split(&args.to)?;
    let mut client = connect(&context).await?;
    let status = client.request("job_status", &json!({ "job_id": job })).await?;
    let all = status.data["nodes"].as_array().map_or(1, Vec::len);
    let payload = match node {
        Some(node) => json!({ "job_id": job, "node_id": node, "content": args.text }),
        None => json!({ "job_id": job, "nodes": "all", "content": args.text }),
    };
    let mut expected = if node.is_some() { 1 } else { all };
    let request = client.send("inject", &payload).await?;
    let mut waiting = BTreeSet::new();
    let mut failed = 0;
    while expected > 0 || !waiting.is_empty() {
        let event = client.next().await?;
        let text = |key: &str| event.data.get(key).and_then(Value::as_str).unwrap_or_default();
        let is_answer = text("request_id") == request;
        match event.event.as_str() {
            "inject_ack" if is_answer => {
                expected -= 1;
                if args.wait {
                    waiting.insert(text("injection_id").to_owned());
                } else {
                    show::accepted(&context, &event.data);
                }
            }
            "command_rejected" if is_answer => {
                return Err(RouterError::from_rejection(&event.data).into());
            }
            _ if !waiting.contains(text("injection_id")) => {}
            "assistant" => show::answer(&context, &event.data, all > 1 && node.is_none()),
            "approval_required" => show::approval(&context, &event.data),
            "turn_complete" => {
                waiting.remove(text("injection_id"));
                if text("status") != "completed" {
                    failed += 1;
                    context.printer.note(show::ending(&event.data));
                }
                if context.printer.is_json() {
                    context.printer.object(&event.data);
                }
            }
            _ => {}
        }
    }
    if failed > 0 {
        return Err(Failure::new(
            "turn_failed",
            Exit::Failed,
            format!("{failed} of the turns did not complete"),
        )
        .hint("`switchboard worker attach` shows what happened; `worker logs` shows the program's stderr"));
    }
    Ok(())
}
