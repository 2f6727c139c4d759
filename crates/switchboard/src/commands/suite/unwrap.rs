//! The verb `switchboard suite unwrap`.

use clap::Args;
use door_suites::unwrap_child;
use serde_json::json;

use super::{Workspace, typed};
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;

/// Remove a wrapper: restore the server's file, byte for byte.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite unwrap notes"])]
pub(super) struct Unwrap {
    /// The server
    name: String,
}

pub(super) fn run(args: &Unwrap, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let lookup = |name: &str| std::env::var(name).ok();
    let unwrapped = unwrap_child(&args.name, &workspace.settings.suites, &workspace.places, &lookup)?;
    let (name, is_trusted) = (&unwrapped.name, unwrapped.is_trusted);
    let kept: Vec<String> = unwrapped.kept.iter().map(|path| workspace.shown(path)).collect();
    if context.printer.is_json() {
        context
            .printer
            .object(&json!({ "name": name, "wrapped": false, "trusted": is_trusted, "kept": kept }));
        return Ok(());
    }
    context.printer.line(format_args!("{name} is what it was."));
    for path in kept {
        context.printer.line(format_args!("  {path} stays: it is not what `wrap` wrote."));
    }
    if !is_trusted {
        context.printer.note(format_args!(
            "It is not trusted: look at it, and run `switchboard suite trust {}`.",
            typed(name)
        ));
    }
    Ok(())
}
