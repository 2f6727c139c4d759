//! The verb `switchboard suite trust`.

use std::path::Path;

use clap::Args;
use door_suites::{ChildSpec, Launch, LaunchTemplate, TrustState, render_launch};
use serde_json::json;
use switchboard_core::reveal_command;

use super::Workspace;
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::person::{Consent, NOT_AGREED, agent_evidence, can_ask, refuse_agent, require_person};
use crate::show::plain;

/// Show how servers are started or reached, and trust exactly that.
///
/// Without a name it asks for each server that is not trusted; off a terminal it only lists them.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard suite trust",
    "switchboard suite trust git",
    "switchboard suite trust --revoke git",
])]
pub(super) struct Trust {
    /// The server to trust
    name: Option<String>,
    /// Trust all servers
    #[arg(long, conflicts_with_all = ["name", "revoke"])]
    all: bool,
    /// Revoke the trust in this server
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    revoke: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

pub(super) fn run(args: &Trust, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let trust = door_suites::TrustStore::load(&workspace.places);
    let found = workspace.discover();
    if let Some(name) = &args.revoke {
        refuse_agent(context, &format!("take back the trust in {}", plain(name)))?;
        let name = found.child(name).map_or(name.clone(), |child| child.name.clone());
        if !trust.revoke(&name)? {
            let message = format!("there is no trust in a server '{}' to take back", plain(&name));
            return Err(Failure::new("not_trusted", Exit::NotFound, message)
                .hint("`switchboard suite list` shows which servers are trusted"));
        }
        if context.printer.is_json() {
            context.printer.object(&json!({ "name": name, "state": "new" }));
        } else {
            context.printer.line(format_args!("{name} is no longer trusted."));
        }
        return Ok(());
    }
    let (wanted, by_name) = match &args.name {
        Some(name) => (vec![found.find_child(name)?], true),
        None => (found.children.iter().collect(), args.all),
    };
    let mut left = 0;
    for child in wanted {
        let mut state = trust.state(child);
        let was_trusted = state.is_trusted();
        if !context.printer.is_json() && (!was_trusted || args.name.is_some()) {
            show(context, &child.name, &child.template, folder(child), &state);
        }
        // Without a server name, servers are only listed unless a person can be asked.
        let is_meant = by_name || (can_ask(context) && agent_evidence().is_none());
        if !was_trusted && is_meant && agrees(args, by_name, child, context)? {
            trust.grant(child)?;
            state = TrustState::Trusted;
        }
        left += usize::from(!state.is_trusted());
        if context.printer.is_json() {
            let launch = render_launch(&child.template, folder(child));
            context.printer.object(&json!({ "name": child.name, "state": state.as_str(), "launch": launch }));
        } else if state.is_trusted() && (!was_trusted || args.name.is_some()) {
            let already = if was_trusted { "already " } else { "" };
            context.printer.line(format_args!("{} is {already}trusted.", child.name));
        }
    }
    if left > 0 {
        context.printer.note("`switchboard suite trust NAME` agrees to one of them, --all to all.");
    } else if args.name.is_none() && !found.children.is_empty() {
        context.printer.note("All servers are trusted.");
    }
    Ok(())
}

/// Returns true if the person trusts a server. Declining a server that was named is a failure.
fn agrees(args: &Trust, by_name: bool, child: &ChildSpec, context: &Context) -> Result<bool, Failure> {
    match require_person(context, &format!("trust {}", plain(&child.name)), args.consent.yes) {
        Err(failure) if failure.code == NOT_AGREED && !(by_name && args.name.is_some()) => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// Returns the folder in which a server's program starts.
fn folder(child: &ChildSpec) -> Option<&Path> {
    match &child.launch {
        Launch::Stdio { cwd, .. } => Some(cwd),
        Launch::Http { .. } | Launch::Sse { .. } | Launch::Ws { .. } => None,
    }
}

/// Prints exactly what would be trusted. Confusable characters of a command are escaped.
pub(crate) fn show(
    context: &Context,
    name: &str,
    template: &LaunchTemplate,
    folder: Option<&Path>,
    state: &TrustState,
) {
    context.printer.line(name);
    for line in render_launch(template, folder) {
        context.printer.line(format_args!("    {}", reveal_command(&line)));
    }
    if let TrustState::Changed { diff } = state {
        context.printer.line("  changed since it was trusted:");
        for line in diff.lines() {
            context.printer.line(format_args!("    {}", reveal_command(line)));
        }
    }
}
