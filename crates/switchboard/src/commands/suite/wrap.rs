//! The verb `switchboard suite wrap`.

use clap::Args;
use door_suites::wrap_child;
use serde_json::json;

use super::{Workspace, typed};
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;

/// Wrap a server: a model uses it for others, who ask in plain language.
///
/// The model's role is written to CLAUDE.md beside the server's file, where you can edit it. docs/wrappers.md describes
/// which model answers, and what it may do.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite wrap notes"])]
pub(super) struct Wrap {
    /// The server
    name: String,
}

pub(super) fn run(args: &Wrap, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let program = crate::program::shared_name()?;
    let lookup = |name: &str| std::env::var(name).ok();
    let wrapped = wrap_child(&args.name, &program, &workspace.settings.suites, &workspace.places, &lookup)?;
    let (name, role) = (&wrapped.name, workspace.shown(&wrapped.role));
    if context.printer.is_json() {
        context
            .printer
            .object(&json!({ "name": name, "wrapped": true, "role": role, "kept_role": wrapped.kept_role }));
        return Ok(());
    }
    let kept = if wrapped.kept_role { ", which was there" } else { "" };
    context.printer.line(format_args!("{name} is asked in plain language now."));
    context.printer.line(format_args!("  Its model's role is {role}{kept}; edit it as you like."));
    context.printer.line(format_args!("  `switchboard suite unwrap {}` takes it back.", typed(name)));
    Ok(())
}
