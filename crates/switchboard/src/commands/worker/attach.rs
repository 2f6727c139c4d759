//! The verb `switchboard worker attach`.

use clap::Args;
use door_workers::RouterError;
use serde_json::{Value, json};

use super::show::Follower;
use super::{connect, split};
use crate::cli::help::examples;
use crate::cli::values::number;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Follow what a job does, until it ends.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard worker attach j7kq2m",
    "switchboard worker attach j7kq2m/0 --since 0",
])]
pub(super) struct Attach {
    /// The job, or JOB/NODE
    job: String,

    /// Start after this event number instead of now; 0 starts at the oldest retained event
    #[arg(long, value_name = "NUMBER", value_parser = number::<u64>)]
    since: Option<u64>,
}

pub(super) async fn run(args: Attach, context: Context) -> Result<(), Failure> {
    let (job, node) = split(&args.job)?;
    let mut client = connect(&context).await?;
    let status = client.request("job_status", &json!({ "job_id": job })).await?;
    let nodes = status.data["nodes"].as_array().map_or(0, Vec::len);
    if let Some(node) = node.filter(|node| usize::try_from(*node).is_ok_and(|node| node >= nodes)) {
        return Err(no_node(job, node, nodes));
    }
    let hello = client.request("hello", &json!({})).await?.data;
    let number = |key: &str| hello[key].as_u64().unwrap_or_default();
    let (oldest, newest) = (number("oldest_seq"), number("newest_seq"));
    let is_over = status.data["status"] == "terminated";
    if is_over && args.since.is_none() {
        context.printer.note(format_args!("{job} has ended. `--since 0` shows its stored events."));
        return Ok(());
    }
    let since = args.since.map(|since| since.max(oldest.saturating_sub(1)));
    if since != args.since && args.since != Some(0) {
        context.printer.note(format_args!("Events before {oldest} have expired."));
    }
    client.request("subscribe", &json!({ "from_seq": since, "jobs": [job] })).await?;
    let mut follower = Follower::new(&context, &status.data);
    if is_over {
        // The job has ended, so no event will follow. Each response to `hello` reports how far its stored events were
        // sent.
        client.send("hello", &json!({})).await?;
    }
    loop {
        let event = client.next().await?;
        if event.event == "hello" {
            if event.seq >= newest {
                return Ok(());
            }
            client.send("hello", &json!({})).await?;
            continue;
        }
        let is_other = node.is_some_and(|node| {
            event.data.get("node_id").and_then(Value::as_u64).is_some_and(|other| other != u64::from(node))
        });
        if event.event == "heartbeat" || is_other {
            continue;
        }
        follower.show(&event);
        match event.event.as_str() {
            "job_terminated" => return Ok(()),
            "cut_off" => {
                let reason = event.data["reason"].as_str().unwrap_or_default().to_owned();
                return Err(RouterError::Disconnected { reason }.into());
            }
            _ => {}
        }
    }
}

fn no_node(job: &str, node: u32, nodes: usize) -> Failure {
    let message = format!("job '{job}' has no node {node}");
    let last = nodes.saturating_sub(1);
    Failure::new("unknown_node", Exit::NotFound, message).hint(format!("it has {job}/0 to {job}/{last}"))
}
