//! The verb `switchboard renew`.

use clap::Args;
use jiff::SignedDuration;
use switchboard_actions::{self as actions, Actor};

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
    let workspace = context.open().await?;
    let me = context.identity()?;
    let claim = actions::renew(Actor::new(&workspace, &me), &args.task, args.number, args.lease)
        .await
        .map_err(|error| Failure::of_action("renew", error))?;
    print(&context, &claim, "keeps");
    workspace.close().await;
    Ok(())
}
