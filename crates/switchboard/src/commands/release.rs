//! `switchboard release`

use clap::Args;
use switchboard_core::TaskName;

use crate::commands::claim::print;
use crate::context::Context;
use crate::failure::Failure;

/// Give back a task that you have taken on, so that others can have it.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The task
    task: String,

    /// The number that the claim was given
    number: i64,
}

pub(crate) async fn run(args: Release, context: Context) -> Result<(), Failure> {
    let task = TaskName::parse(&args.task)?;
    let workspace = context.open().await?;
    let claim = workspace.hub().release_claim(task, context.identity()?, args.number).await?;
    print(&context, &claim, "had");
    workspace.close().await;
    Ok(())
}
