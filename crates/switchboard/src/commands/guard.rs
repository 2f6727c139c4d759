//! The verb `switchboard guard`.

mod git;
mod hook;

use clap::{Args, Subcommand};
use serde_json::json;
use switchboard_core::Pattern;
use switchboard_hub::{Reservation, WorkTree};

use crate::cli::help::examples;
use crate::context::{Context, UNNAMED};
use crate::failure::{Exit, Failure};
use crate::show;

/// Check that staged files are not reserved by another agent; installs as a Git hook.
///
/// Exit code 1 means that another agent reserved a staged file, and the error names it. Another nonzero code means that
/// the reservations could not be checked.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard guard",
    "switchboard guard install",
])]
pub(crate) struct Guard {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install the check as Git's pre-commit hook; an existing hook still runs first
    #[command(after_long_help = examples!["switchboard guard install"])]
    Install,
    /// Uninstall the pre-commit hook, and restore the one from before
    #[command(after_long_help = examples!["switchboard guard uninstall"])]
    Uninstall,
}

pub(crate) async fn run(args: Guard, context: Context) -> Result<(), Failure> {
    match args.command {
        None => match check(&context).await {
            // Exit code 1 only means "reserved by another agent", so that a hook can tell it from a check that failed.
            Err(failure) if failure.exit == Exit::Failed && failure.code != "reserved" => {
                Err(Failure { exit: Exit::Temporary, ..failure })
            }
            other => other,
        },
        Some(Verb::Install) => hook::install(&context).await,
        Some(Verb::Uninstall) => hook::uninstall(&context).await,
    }
}

async fn check(context: &Context) -> Result<(), Failure> {
    let current_folder = std::env::current_dir().map_err(anyhow::Error::from)?;
    let tree = WorkTree::of(&current_folder)?;
    // Git may take its folder from `GIT_DIR`, which it also sets for hooks.
    if tree.root == tree.repository && std::env::var_os("GIT_DIR").is_none() {
        let message = format!("there is no repository of Git in {} or above it", current_folder.display());
        return Err(Failure::new("no_repository", Exit::NotFound, message)
            .hint("`switchboard guard` is for repositories of Git"));
    }
    let staged = git::staged(&current_folder).await?;
    let workspace = context.open().await?;
    let hub = workspace.hub();
    let me = match context.identity() {
        Ok(agent) => Some(hub.directory().await?.canonical(&agent)),
        // An agent without a name holds no reservations.
        Err(failure) if failure.code == UNNAMED => None,
        Err(failure) => return Err(failure),
    };
    let reserved = hub.claims().reservations().await?;
    workspace.close().await;
    let others: Vec<&Reservation> =
        reserved.iter().filter(|reservation| Some(&reservation.holder) != me.as_ref()).collect();
    let mut met = Vec::new();
    for path in &staged {
        let file = Pattern::path(path);
        met.extend(
            others
                .iter()
                .find(|reservation| reservation.conflicts_with(&tree, false, &file))
                .map(|reservation| (path, *reservation)),
        );
    }
    for (path, reservation) in &met {
        if context.printer.is_json() {
            context.printer.object(&json!({
                "path": path,
                "holder": reservation.holder.to_string(),
                "pattern": reservation.pattern,
                "until": reservation.until.to_string(),
                "note": reservation.note,
            }));
        }
    }
    let Some((_, first)) = met.first() else { return Ok(()) };
    let lines: Vec<String> =
        met.iter().map(|(path, reservation)| describe_conflict(path, reservation)).collect();
    Err(Failure::new("reserved", Exit::Failed, lines.join("; ")).hint(format!(
        "ask {} (`switchboard send \"{}\" …`), wait, or commit all the same with `git commit --no-verify`",
        first.holder, first.holder
    )))
}

fn describe_conflict(path: &str, reservation: &Reservation) -> String {
    let note = reservation.note.as_ref().map(|note| format!(": {}", show::inline(note))).unwrap_or_default();
    let (path, pattern) = (show::inline(path), show::inline(&reservation.pattern));
    format!(
        "'{path}' is reserved by {} ('{pattern}' until {:.0}){note}",
        reservation.holder, reservation.until
    )
}
