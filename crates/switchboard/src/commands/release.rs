//! The verb `switchboard release`.

use clap::Args;
use switchboard_actions::{self as actions, Actor};

use crate::cli::help::examples;
use crate::cli::values::number;
use crate::commands::claim::print;
use crate::context::Context;
use crate::failure::Failure;

/// Release your claim on a task.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard release TICKET-7 3"])]
pub(crate) struct Release {
    /// The task
    task: String,

    /// The fence number that `switchboard claim` printed
    #[arg(value_parser = number::<i64>)]
    number: i64,
}

pub(crate) async fn run(args: Release, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let me = context.identity()?;
    let claim = actions::release(Actor::new(&workspace, &me), &args.task, args.number)
        .await
        .map_err(|error| Failure::of_action("release", error))?;
    print(&context, &claim, "had");
    workspace.close().await;
    Ok(())
}
