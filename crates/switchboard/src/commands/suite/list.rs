//! `switchboard suite list`

use door_suites::{
    ChildSpec, Descriptions, Pins, Problem, Secrets, Trust, TrustState, neutral, redact, suite_description,
};
use serde_json::json;

use super::{Workspace, typed};
use crate::context::Context;
use crate::show::plain;

pub(super) fn run(workspace: &Workspace, context: &Context) {
    let found = workspace.discover();
    let trust = Trust::load(&workspace.places);
    let descriptions = Descriptions::load(&workspace.places);
    let mut warnings = found.warnings.clone();
    let descriptions = descriptions.unwrap_or_else(|problem| {
        warnings.push(problem);
        Descriptions::default()
    });
    for child in &found.children {
        let line = Line::new(workspace, child, &trust, &descriptions);
        line.print(context);
    }
    for name in &found.disabled {
        if context.printer.is_json() {
            context.printer.object(&json!({ "name": name, "state": "disabled" }));
        } else {
            context.printer.line(format_args!("{name}  disabled in the settings"));
        }
    }
    let problems = found.problems.iter().map(|problem| (problem, "problem"));
    for (problem, kind) in problems.chain(warnings.iter().map(|warning| (warning, "warning"))) {
        print_problem(workspace, context, problem, kind);
    }
    if found.children.is_empty() && found.problems.is_empty() && found.disabled.is_empty() {
        context.printer.note("No servers yet; `switchboard suite add NAME -- COMMAND` adds one.");
    }
}

/// What is said of one server.
struct Line<'l> {
    child: &'l ChildSpec,
    tool: String,
    state: TrustState,
    description: String,
    tools: Option<usize>,
    blocked: Vec<String>,
    file: String,
}

impl<'l> Line<'l> {
    fn new(workspace: &Workspace, child: &'l ChildSpec, trust: &Trust, descriptions: &Descriptions) -> Self {
        let config = &workspace.settings.suites;
        let description = suite_description(child, config, descriptions, None);
        let pins = Pins::load(&workspace.places, &child.name);
        // What cannot be read counts as not there; `pins list` says what is wrong with it.
        let (tools, blocked) = match &pins {
            Ok(pins) => {
                (pins.pinned().count(), pins.waiting().into_iter().map(|problem| problem.tool).collect())
            }
            Err(_) => (0, Vec::new()),
        };
        Self {
            child,
            tool: config.suite_name(&child.name),
            state: trust.is_trusted(child),
            description: redact(&neutral(&description).text, &Secrets::of(child)),
            tools: (tools > 0).then_some(tools),
            blocked,
            file: workspace.shown(&child.file),
        }
    }

    fn print(&self, context: &Context) {
        let name = &self.child.name;
        if context.printer.is_json() {
            context.printer.object(&json!({
                "name": name,
                "tool": self.tool,
                "state": self.state.as_str(),
                "type": self.child.written.transport,
                "description": self.description,
                "tools": self.tools,
                "blocked": self.blocked,
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
        let tools = match self.tools {
            Some(1) => "1 tool".to_owned(),
            Some(count) => format!("{count} tools"),
            None => "never started".to_owned(),
        };
        context.printer.line(format_args!("{name} ({}, {tools})  {state}", self.tool));
        context.printer.line(format_args!("    {}", plain(&self.description)));
        if !self.blocked.is_empty() {
            let blocked: Vec<String> = self.blocked.iter().map(|tool| plain(tool)).collect();
            context.printer.line(format_args!(
                "    changed and blocked: {}; see `switchboard suite pins list {}`",
                blocked.join(", "),
                typed(name)
            ));
        }
    }
}

fn print_problem(workspace: &Workspace, context: &Context, problem: &Problem, kind: &str) {
    let (file, message) = (workspace.shown(&problem.file), redact(&problem.message, &Secrets::default()));
    if context.printer.is_json() {
        context
            .printer
            .object(&json!({ "name": problem.child, "state": kind, "file": file, "message": message }));
    } else {
        context.printer.line(format_args!("{kind}: {}: {}", plain(&file), plain(&message)));
    }
}
