//! The verb `switchboard suite revert`.

use clap::Args;
use door_suites::{Pins, TrustStore, remove_child};
use serde_json::json;
use switchboard_sys::clock::Clock;

use super::Workspace;
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;

/// Restore `.mcp.json` as it was before the last import, byte for byte.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard suite revert",
    "switchboard suite revert --purge",
])]
pub(super) struct Revert {
    /// Restore it even if it was edited since
    #[arg(long)]
    force: bool,
    /// Also remove the servers that were imported from it
    #[arg(long)]
    purge: bool,
}

pub(super) fn run(args: &Revert, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let found = workspace.discover();
    let reverted = door_suites::revert(&workspace.places, args.force)?;
    let mut purged = Vec::new();
    if args.purge {
        let trust = TrustStore::load(&workspace.places);
        for name in &reverted.children {
            let file =
                found.child(name).map_or(workspace.places.child_file(name), |child| child.file.clone());
            if !file.exists() {
                continue;
            }
            remove_child(&workspace.places, name, &file, Clock::system().now())?;
            trust.revoke(name)?;
            Pins::forget(&workspace.places, name)?;
            purged.push(name.clone());
        }
    }
    let (file, backup) = (workspace.shown(&reverted.file), workspace.shown(&reverted.backup));
    if context.printer.is_json() {
        context.printer.object(&json!({ "file": file, "backup": backup, "purged": purged }));
        return Ok(());
    }
    context.printer.line(format_args!("{file} is again what it was ({backup})."));
    match (args.purge, reverted.children.is_empty()) {
        (true, _) if !purged.is_empty() => {
            context.printer.line(format_args!("Took out {}.", purged.join(", ")));
        }
        (false, false) => context.printer.note(format_args!(
            "Kept in .switchboard/mcps: {}; --purge would have taken them out.",
            reverted.children.join(", ")
        )),
        _ => {}
    }
    Ok(())
}
