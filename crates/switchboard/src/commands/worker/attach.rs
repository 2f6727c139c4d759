//! `switchboard worker attach`

use clap::Args;
use serde_json::{Value, json};

use super::show::Follower;
use super::{connect, split};
use crate::context::Context;
use crate::failure::Failure;

/// Follow what a job does, until it ends.
#[derive(Debug, Args)]
pub(super) struct Attach {
    /// The job, or JOB/NODE
    job: String,

    /// Everything after this number, instead of from now on; 0 is everything that is kept
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
}

pub(super) async fn run(args: Attach, context: Context) -> Result<(), Failure> {
    let (job, node) = split(&args.job)?;
    let mut client = connect(&context).await?;
    let status = client.ask("job_status", &json!({ "job_id": job })).await?;
    client.ask("subscribe", &json!({ "from_seq": args.since, "jobs": [job] })).await?;
    let mut follower = Follower::new(&context, &status.data);
    loop {
        let event = client.next().await?;
        let is_other = node.is_some_and(|node| {
            event.data.get("node_id").and_then(Value::as_u64).is_some_and(|other| other != u64::from(node))
        });
        if event.event == "heartbeat" || is_other {
            continue;
        }
        follower.show(&event);
        if matches!(event.event.as_str(), "job_terminated" | "cut_off") {
            return Ok(());
        }
    }
}
