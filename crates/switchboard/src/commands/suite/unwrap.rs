//! `switchboard suite unwrap`

use clap::Args;
use door_suites::unwrap_child;
use serde_json::json;

use super::{Workspace, typed};
use crate::context::Context;
use crate::failure::Failure;

/// Take a wrapper away: the server's file is what it was, byte for byte.
#[derive(Debug, Args)]
pub(super) struct Unwrap {
    /// Which
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
