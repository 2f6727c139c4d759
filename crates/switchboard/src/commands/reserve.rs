//! The verb `switchboard reserve`.

use clap::Args;
use jiff::SignedDuration;
use serde_json::json;
use switchboard_actions::{self as actions, Actor};
use switchboard_hub::{Reservation, WorkTree};

use crate::cli::help::examples;
use crate::cli::values::lifetime;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Reserve files you are editing, or list reservations.
///
/// A reservation is advice: it blocks no write. `switchboard guard install` makes Git check it before every commit.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard reserve  # lists all reservations",
    "switchboard reserve src/parser.rs 'tests/**/*.rs' --for 2h --note 'error recovery'",
    "switchboard reserve src/parser.rs --release",
])]
pub(crate) struct Reserve {
    /// Files, folders or patterns: src/a.rs, docs/, 'src/**/*.rs' [default: list all reservations]
    patterns: Vec<String>,

    /// Set how long the reservation lasts unless you repeat it [default: 30m; at most 24h]
    #[arg(long = "for", value_name = "DURATION", requires = "patterns", value_parser = lifetime)]
    lease: Option<SignedDuration>,

    /// Add a note; other agents see it
    #[arg(long, value_name = "TEXT", requires = "patterns")]
    note: Option<String>,

    /// Reserve in every working tree of the repository, not only in this one
    #[arg(long, requires = "patterns")]
    shared: bool,

    /// Release these reservations; without patterns, all of yours
    #[arg(long, conflicts_with_all = ["lease", "note", "shared"])]
    release: bool,
}

pub(crate) async fn run(args: Reserve, context: Context) -> Result<(), Failure> {
    let (folder, tree) = context.working_tree()?;
    let workspace = context.open().await?;
    let me = context.identity()?;
    let actor = Actor::new(&workspace, &me);
    let refused = |error| Failure::of_action("reserve", error);
    if args.release {
        let count = actions::release_reservations(actor, &folder, &args.patterns).await.map_err(refused)?;
        if context.printer.is_json() {
            context.printer.object(&json!({ "released": count }));
        } else {
            context.printer.line(format_args!("{count} released"));
        }
    } else if args.patterns.is_empty() {
        let all = workspace.hub().claims().reservations().await?;
        for reservation in &all {
            print(&context, reservation, &tree);
        }
        if all.is_empty() {
            context.printer.note("No files are reserved.");
        }
    } else {
        let request = actions::Reserve {
            paths: args.patterns,
            lease: args.lease,
            note: args.note,
            shared: args.shared,
        };
        for reservation in &actions::reserve(actor, &folder, request).await.map_err(refused)? {
            print(&context, reservation, &tree);
        }
    }
    workspace.close().await;
    Ok(())
}

/// Prints a reservation as text or JSON. Scripts rely on the JSON key names.
fn print(context: &Context, reservation: &Reservation, here: &WorkTree) {
    let Reservation { holder, tree, pattern, shared, note, made_at, until } = reservation;
    if context.printer.is_json() {
        context.printer.object(&json!({
            "holder": holder.to_string(),
            "pattern": pattern,
            "tree": tree.root,
            "shared": shared,
            "note": note,
            "made_at": made_at.to_string(),
            "until": until.to_string(),
        }));
        return;
    }
    let place = if tree == here { String::new() } else { format!(" in {}", show::inline(&tree.root)) };
    let shared = if *shared { ", in every tree" } else { "" };
    let note = note.as_ref().map(|note| format!(": {}", show::inline(note))).unwrap_or_default();
    context.printer.line(format_args!(
        "{holder} works at '{}'{place} until {until:.0}{shared}{note}",
        show::inline(pattern)
    ));
}
