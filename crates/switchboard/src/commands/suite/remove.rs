//! The verb `switchboard suite remove`.

use clap::Args;
use door_suites::{Pins, TrustStore, is_wrapper, remove_child};
use serde_json::json;
use switchboard_sys::clock::Clock;

use super::{Workspace, typed};
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Remove a server, with its trust and pins; its file is kept in .switchboard/backups.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite remove memory"])]
pub(super) struct Remove {
    /// The server
    name: String,
}

pub(super) fn run(args: &Remove, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let found = workspace.discover();
    let (name, file) = match found.child(&args.name) {
        Some(child) => (child.name.clone(), child.file.clone()),
        // A server with an invalid file, or a disabled one, can be removed as well.
        None => match found.issues.iter().find(|problem| problem.is_about(&args.name)) {
            Some(problem) => (args.name.clone(), problem.file.clone()),
            None => match found.disabled.iter().find(|name| name.eq_ignore_ascii_case(&args.name)) {
                Some(name) => (name.clone(), workspace.places.child_file(name)),
                None => return found.find_child(&args.name).map(|_| ()).map_err(Into::into),
            },
        },
    };
    if let Some(child) = found.child(&name).filter(|child| is_wrapper(child)) {
        return Err(Failure::new("wrapped", Exit::Failed, format!("the server '{}' is wrapped", child.name))
            .hint(format!("`switchboard suite unwrap {}` first", typed(&child.name))));
    }
    let backup = remove_child(&workspace.places, &name, &file, Clock::system().now())?;
    TrustStore::load(&workspace.places).revoke(&name)?;
    Pins::forget(&workspace.places, &name)?;
    if context.printer.is_json() {
        context.printer.object(&json!({ "name": name, "removed": true, "backup": workspace.shown(&backup) }));
    } else {
        context.printer.line(format_args!("Removed {name}; its file is now {}.", workspace.shown(&backup)));
    }
    Ok(())
}
