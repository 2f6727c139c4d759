//! `switchboard renew`

use clap::Args;
use switchboard_core::TaskName;

use crate::commands::claim::print;
use crate::commands::send::time_span;
use crate::context::Context;
use crate::failure::Failure;

/// Keep a task that you have taken on for longer.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// The task
    task: String,

    /// The number that the claim was given
    number: i64,

    /// How long you have it from now on [default: as long as it was given for, at most 24h]
    #[arg(long = "for", value_name = "TIME")]
    lease: Option<String>,
}

pub(crate) async fn run(args: Renew, context: Context) -> Result<(), Failure> {
    let lease = args.lease.as_deref().map(time_span).transpose()?;
    let task = TaskName::parse(&args.task)?;
    let workspace = context.open().await?;
    let claim = workspace.hub().renew_claim(task, context.identity()?, args.number, lease).await?;
    print(&context, &claim, "keeps");
    workspace.close().await;
    Ok(())
}
