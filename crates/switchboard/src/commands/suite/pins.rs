//! The verb `switchboard suite pins`.

use clap::{Args, Subcommand};
use door_suites::{Discovery, original_name};
use serde_json::json;

use super::{Workspace, typed};
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::person::{Consent, require_person};
use crate::show::plain;

/// List tools pinned at their first use, and approve those that changed.
///
/// A tool that changed since its first use is blocked until a person approves the change.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite pins", "switchboard suite pins approve git git_log"])]
pub(super) struct Pins {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List pinned tools and what changed (the default)
    #[command(after_long_help = examples!["switchboard suite pins list git"])]
    List {
        /// The server [default: all servers]
        name: Option<String>,
    },
    /// Approve changed tools
    #[command(after_long_help = examples!["switchboard suite pins approve git git_log"])]
    Approve {
        /// The server [default: all servers]
        name: Option<String>,
        /// The tool [default: all changed tools]
        tool: Option<String>,
        #[command(flatten)]
        consent: Consent,
    },
}

pub(super) fn run(args: Pins, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let found = workspace.discover();
    match args.command.unwrap_or(Verb::List { name: None }) {
        Verb::List { name } => list(&names(&found, name.as_deref())?, workspace, context),
        Verb::Approve { name, tool, consent } => {
            let names = names(&found, name.as_deref())?;
            let what = match (&name, &tool) {
                (Some(name), Some(tool)) => format!("the changed tool {} of {}", plain(tool), plain(name)),
                (Some(name), None) => format!("all changed tools of {}", plain(name)),
                (None, _) => "all changed tools".to_owned(),
            };
            require_person(context, &format!("approve {what}"), consent.yes)?;
            approve(&names, tool.as_deref(), workspace, context)
        }
    }
}

fn names(found: &Discovery, name: Option<&str>) -> Result<Vec<String>, Failure> {
    // A wrapper pins its own tools and, separately, those of the original server behind it.
    let originals = || found.children.iter().filter_map(original_name);
    match name {
        Some(name) => match originals().find(|original| original.eq_ignore_ascii_case(name)) {
            Some(original) => Ok(vec![original]),
            None => Ok(vec![found.find_child(name)?.name.clone()]),
        },
        None => Ok(found.children.iter().map(|child| child.name.clone()).chain(originals()).collect()),
    }
}

fn list(names: &[String], workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let mut waiting = 0;
    for name in names {
        let pins = door_suites::Pins::load(&workspace.places, name)?;
        let changed = pins.pending();
        waiting += changed.len();
        if context.printer.is_json() {
            for (tool, at) in pins.pinned() {
                let is_changed = changed.iter().any(|problem| problem.tool == tool);
                let state = if is_changed { "changed" } else { "pinned" };
                context.printer.object(&json!({ "name": name, "tool": tool, "state": state, "at": at }));
            }
            for problem in &changed {
                let (tool, diff) = (&problem.tool, &problem.diff);
                context
                    .printer
                    .object(&json!({ "name": name, "tool": tool, "state": "waiting", "diff": diff }));
            }
            continue;
        }
        let count = pins.pinned().count();
        let words = if count == 1 { "tool" } else { "tools" };
        context.printer.line(format_args!("{name}: {count} {words} remembered, {} changed", changed.len()));
        for problem in &changed {
            context.printer.line(format_args!("  {}", plain(&problem.tool)));
            for line in problem.diff.lines() {
                context.printer.line(format_args!("    {}", plain(line)));
            }
        }
    }
    if waiting > 0 {
        context.printer.note("`switchboard suite pins approve NAME TOOL` agrees to a change.");
    }
    Ok(())
}

fn approve(
    names: &[String],
    tool: Option<&str>,
    workspace: &Workspace,
    context: &Context,
) -> Result<(), Failure> {
    let mut approved = 0;
    for name in names {
        let tools = door_suites::Pins::load(&workspace.places, name)?.approve(tool)?;
        approved += tools.len();
        for tool in tools {
            if context.printer.is_json() {
                context.printer.object(&json!({ "name": name, "tool": tool, "state": "pinned" }));
            } else {
                context.printer.line(format_args!("{} {}: approved", typed(name), plain(&tool)));
            }
        }
    }
    if approved == 0 {
        context.printer.note("Nothing waits for approval.");
    }
    Ok(())
}
