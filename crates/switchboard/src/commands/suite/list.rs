//! The verb `switchboard suite list`.

use door_suites::{ChildSpec, Issue, Overview, Pins, Secrets, TrustState, TrustStore, redact};
use jiff::SignedDuration;
use serde_json::json;
use switchboard_sys::clock::{Clock, format_ago};

use super::{Workspace, typed};
use crate::context::Context;
use crate::failure::Failure;
use crate::show::plain;

/// Age from which the list reports when a server's tools were last fetched.
const OLD: SignedDuration = SignedDuration::from_hours(24);

/// Maximum number of blocked tools that are listed by name.
const NAMED: usize = 20;

pub(super) async fn run(context: Context) -> Result<(), Failure> {
    let workspace = Workspace::open(&context)?;
    let suites = context.quiet_suites(&workspace.settings).await?;
    let (overview, problems) = (suites.overview(), suites.issues());
    suites.close().await;
    let found = workspace.discover();
    let trust = TrustStore::load(&workspace.places);
    for child in &found.children {
        if let Some(known) = overview.iter().find(|known| known.name == child.name) {
            Line::new(&workspace, child, known, &trust).print(&context);
        }
    }
    for name in &found.disabled {
        if context.printer.is_json() {
            context.printer.object(&json!({ "name": name, "state": "disabled" }));
        } else {
            context.printer.line(format_args!("{name}  disabled in the settings"));
        }
    }
    let kinds = problems.iter().map(|problem| (problem, "problem"));
    for (problem, kind) in kinds.chain(found.warnings.iter().map(|warning| (warning, "warning"))) {
        print_problem(&workspace, &context, problem, kind);
    }
    if found.children.is_empty() && problems.is_empty() && found.disabled.is_empty() {
        context.printer.note("No servers yet; `switchboard suite add NAME -- COMMAND` adds one.");
    }
    Ok(())
}

/// Report on one server.
struct Line<'l> {
    child: &'l ChildSpec,
    known: &'l Overview,
    state: TrustState,
    description: String,
    blocked: Vec<String>,
    file: String,
}

impl<'l> Line<'l> {
    fn new(workspace: &Workspace, child: &'l ChildSpec, known: &'l Overview, trust: &TrustStore) -> Self {
        // If the pins file cannot be read, no tool is reported as blocked here; `pins list` reports the error.
        let names = |pins: Pins| pins.pending_names().map(str::to_owned).collect();
        let blocked = Pins::load(&workspace.places, &child.name).map(names).unwrap_or_default();
        Self {
            child,
            known,
            state: trust.state(child),
            description: redact(&known.description, &Secrets::of(child)),
            blocked,
            file: workspace.shown(&child.file),
        }
    }

    fn print(&self, context: &Context) {
        let name = &self.child.name;
        if context.printer.is_json() {
            context.printer.object(&json!({
                "name": name,
                "tool": self.known.tool,
                "state": self.state.as_str(),
                "type": self.child.template.transport,
                "description": self.description,
                "tools": self.known.tools.map(|(count, _)| count),
                "as_of": self.known.tools.map(|(_, taken_at)| taken_at),
                "blocked": self.blocked,
                "problem": self.child.unready,
                "file": self.file,
            }));
            return;
        }
        let state = match &self.state {
            TrustState::Trusted => "trusted".to_owned(),
            TrustState::New => format!("not trusted yet: switchboard suite trust {}", typed(name)),
            TrustState::Changed { .. } => {
                format!("changed since it was trusted: switchboard suite trust {}", typed(name))
            }
        };
        let tools = match self.known.tools {
            Some((1, _)) => "1 tool".to_owned(),
            Some((count, _)) => format!("{count} tools"),
            None => "never started".to_owned(),
        };
        // Show the age of an old tool list, because the tools may have changed since it was fetched.
        let now = Clock::system().now();
        let age = self.known.tools.filter(|(_, taken_at)| now.duration_since(*taken_at) > OLD);
        let age =
            age.map(|(_, taken_at)| format!(" as of {}", format_ago(now, taken_at))).unwrap_or_default();
        let listed = self.known.tool.as_deref().unwrap_or("one by one");
        context.printer.line(format_args!("{name} ({listed}, {tools}{age})  {state}"));
        context.printer.line(format_args!("    {}", plain(&self.description)));
        if let Some(reason) = &self.child.unready {
            context.printer.line(format_args!("    cannot be started: {}", plain(reason)));
        }
        if !self.blocked.is_empty() {
            let blocked: Vec<String> = self.blocked.iter().take(NAMED).map(|tool| plain(tool)).collect();
            let more = match self.blocked.len() - blocked.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            context.printer.line(format_args!(
                "    changed and blocked: {}{more}; see `switchboard suite pins list {}`",
                blocked.join(", "),
                typed(name)
            ));
        }
    }
}

fn print_problem(workspace: &Workspace, context: &Context, problem: &Issue, kind: &str) {
    let (file, message) = (workspace.shown(&problem.file), redact(&problem.message, &Secrets::default()));
    if context.printer.is_json() {
        context
            .printer
            .object(&json!({ "name": problem.child, "state": kind, "file": file, "message": message }));
    } else {
        context.printer.line(format_args!("{kind}: {}: {}", plain(&file), plain(&message)));
    }
}
