//! `switchboard renew`

use clap::Args;
use jiff::SignedDuration;
use switchboard_core::TaskName;

use crate::cli::help::examples;
use crate::cli::values::{lifetime, number};
use crate::commands::claim::print;
use crate::context::Context;
use crate::failure::Failure;

/// Extend your claim on a task.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard renew TICKET-7 3 --for 2h"])]
pub(crate) struct Renew {
    /// The task
    task: String,

    /// The fence number that `switchboard claim` printed
    #[arg(value_parser = number::<i64>)]
    number: i64,

    /// Set how long the lease lasts from now on [default: as long as it was claimed for; at most 24h]
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime)]
    lease: Option<SignedDuration>,
}

pub(crate) async fn run(args: Renew, context: Context) -> Result<(), Failure> {
    let task = TaskName::parse(&args.task)?;
    let workspace = context.open().await?;
    let claim = workspace.hub().claims().renew(task, context.identity()?, args.number, args.lease).await?;
    print(&context, &claim, "keeps");
    workspace.close().await;
    Ok(())
}
