//! `switchboard reserve`

use std::path::Path;

use clap::Args;
use jiff::SignedDuration;
use serde_json::json;
use switchboard_core::Pattern;
use switchboard_hub::{RESERVATION_LEASE, Reservation, WorkTree};

use crate::cli::help::examples;
use crate::cli::values::lifetime;
use crate::context::Context;
use crate::failure::{Exit, Failure};
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
    let lease = args.lease.unwrap_or(RESERVATION_LEASE);
    let (folder, tree) = context.working_tree()?;
    let patterns = patterns(&tree, &folder, &args.patterns)?;
    let workspace = context.open().await?;
    let hub = workspace.hub();
    if args.release {
        let asked = patterns.len();
        let count = hub.claims().unreserve(context.identity()?, tree, patterns).await?;
        if asked > 0 && count == 0 {
            let message = format!("{} is not reserved by you in this tree", quote_patterns(&args.patterns));
            return Err(Failure::new("not_reserved", Exit::NotFound, message)
                .hint("`switchboard reserve` lists who works at which files"));
        }
        if context.printer.is_json() {
            context.printer.object(&json!({ "released": count }));
        } else {
            context.printer.line(format_args!("{count} released"));
        }
    } else if patterns.is_empty() {
        let all = hub.claims().reservations().await?;
        for one in &all {
            print(&context, one, &tree);
        }
        if all.is_empty() {
            context.printer.note("No files are reserved.");
        }
    } else {
        let asked = switchboard_hub::ReservationRequest {
            agent: context.known_agent(hub.directory().await?.as_ref())?,
            tree: tree.clone(),
            patterns,
            shared: args.shared,
            note: args.note,
            lease,
        };
        for one in &hub.claims().reserve(asked).await? {
            print(&context, one, &tree);
        }
    }
    workspace.close().await;
    Ok(())
}

/// Resolves the patterns that were typed in a folder.
fn patterns(tree: &WorkTree, folder: &Path, typed: &[String]) -> Result<Vec<Pattern>, Failure> {
    let mut patterns = Vec::new();
    for text in typed {
        patterns.extend(tree.patterns(folder, text)?);
    }
    Ok(patterns)
}

/// Quotes the typed patterns for an error.
fn quote_patterns(patterns: &[String]) -> String {
    let quoted: Vec<String> = patterns.iter().map(|text| format!("'{}'", show::inline(text))).collect();
    quoted.join(", ")
}

/// Prints a reservation as text or JSON. Scripts rely on the names of its fields.
fn print(context: &Context, one: &Reservation, here: &WorkTree) {
    let Reservation { holder, tree, pattern, shared, note, made_at, until } = one;
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
