//! The verb `switchboard claim`.

use clap::Args;
use jiff::SignedDuration;
use serde_json::json;
use switchboard_actions::{self as actions, ActionError, Actor};
use switchboard_hub::TaskClaim;

use crate::cli::help::examples;
use crate::cli::values::{lifetime, number};
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Claim a task so that no other agent takes it, or list claims.
///
/// A task has at most one active claim. Each claim has a fence number, which is higher than that of every earlier claim
/// on the task. Pass the number with your work on the task (`switchboard send --claim TASK:NUMBER`, `switchboard claim
/// TASK --check NUMBER`): after the claim has ended, that is refused.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard claim  # lists all claims",
    "switchboard claim TICKET-7 --for 2h --note 'on branch parser'",
    "switchboard claim TICKET-7 --check 3",
])]
pub(crate) struct Claim {
    /// The task: a ticket, a word or a sentence [default: list all claims]
    task: Option<String>,

    /// Let the claim expire after this long unless you renew it [default: 10m; at most 24h]
    #[arg(long = "for", value_name = "DURATION", requires = "task", value_parser = lifetime)]
    lease: Option<SignedDuration>,

    /// Add a note; other agents see it
    #[arg(long, value_name = "TEXT", requires = "task")]
    note: Option<String>,

    /// Claim the task across all hubs linked over NATS, not only in this workspace; needs a running `switchboard serve`
    #[arg(long, requires = "task", conflicts_with = "check")]
    everywhere: bool,

    /// Check whether your claim with this fence number is still in force
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "task",
        conflicts_with_all = ["lease", "note"],
        value_parser = number::<i64>
    )]
    check: Option<i64>,
}

pub(crate) async fn run(args: Claim, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    match (args.task, args.check) {
        (None, _) => {
            let claims = workspace.hub().claims().list().await?;
            for claim in &claims {
                print(&context, claim, "has");
            }
            if claims.is_empty() {
                context.printer.note("No task is claimed.");
            }
        }
        (Some(task), Some(fence)) => {
            let me = context.identity()?;
            let claim = actions::check_claim(Actor::new(&workspace, &me), &task, fence).await;
            print(&context, &claim.map_err(refused)?, "has");
        }
        (Some(task), None) => {
            let me = context.identity()?;
            let request =
                actions::Claim { task, lease: args.lease, note: args.note, everywhere: args.everywhere };
            let claim = actions::claim(Actor::new(&workspace, &me), request).await.map_err(refused)?;
            print(&context, &claim, "claimed");
        }
    }
    workspace.close().await;
    Ok(())
}

fn refused(error: ActionError) -> Failure {
    Failure::of_action("claim", error)
}

/// Prints a claim as text or JSON. Scripts rely on the JSON key names.
pub(crate) fn print(context: &Context, claim: &TaskClaim, did: &str) {
    let TaskClaim { task, holder, fence, note, claimed_at, until } = claim;
    if context.printer.is_json() {
        context.printer.object(&json!({
            "task": task.as_str(),
            "holder": holder.to_string(),
            "fence": fence,
            "note": note,
            "claimed_at": claimed_at.to_string(),
            "until": until.to_string(),
        }));
        return;
    }
    let note = note.as_ref().map(|note| format!(": {}", show::inline(note))).unwrap_or_default();
    let task = show::inline(task.as_str());
    context.printer.line(format_args!("{holder} {did} '{task}' until {until:.0}, claim {fence}{note}"));
}
