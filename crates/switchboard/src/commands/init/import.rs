//! Import of a client's MCP servers as suites.

use std::collections::BTreeMap;
use std::path::Path;

use door_suites::{
    AddOutcome, Candidate, Client, ImportOutcome, LaunchTemplate, RootFile, Servers, SuiteError, SuitePaths,
    TrustState, TrustStore, import, read_client,
};
use serde_json::{Value, json};
use switchboard_sys::clock::Clock;

use super::Init;
use crate::commands::suite::{trust, typed};
use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::person::{agent_evidence, ask, can_ask};
use crate::show::plain;

/// Average token cost of an MCP server's tool list, and of its suite: the mean of four well-known servers (o200k). The
/// cost of a particular server is unknown until it was started once.
const SERVER_TOKENS: usize = 2090;
const SUITE_TOKENS: usize = 60;

/// Servers to import.
pub(super) struct Plan {
    places: SuitePaths,
    root: Option<RootFile>,
    client: Option<(Client, Servers)>,
}

/// Result of an import.
#[derive(Default)]
pub(super) struct Report {
    /// Names of the imported servers, and whether each is trusted.
    servers: BTreeMap<String, bool>,
    skipped: BTreeMap<String, String>,
    replaced: Option<ImportOutcome>,
}

impl Plan {
    /// Reads the servers to import; returns `None` if there are none.
    pub(super) fn read(args: &Init, folder: &Path) -> Result<Option<Self>, Failure> {
        if !folder.is_dir() || (args.no_import && args.from.is_none()) {
            return Ok(None);
        }
        let root = if args.no_import { None } else { RootFile::read(folder).map_err(untouched)? };
        let root = root.filter(|root| root.needs_change() || !root.servers.is_empty());
        if root.is_none() && args.from.is_none() {
            return Ok(None);
        }
        let places = config::suite_folders(folder)?;
        let client = match &args.from {
            Some(name) => {
                let client: Client = name.parse()?;
                let lookup = |name: &str| std::env::var(name).ok();
                Some((client, read_client(client, args.file.as_deref(), &places, &lookup)?))
            }
            None => None,
        };
        Ok(Some(Self { places, root, client }))
    }

    /// Imports the servers, and reports the result for each.
    pub(super) fn apply(self, yes: bool, context: &Context) -> Result<Report, Failure> {
        let mut report = Report::default();
        let trust = TrustStore::load(&self.places);
        if let Some((client, servers)) = &self.client {
            report.write_servers(&self.places, servers, &trust, yes, context)?;
            let files: Vec<String> = servers.files.iter().map(|file| file.display().to_string()).collect();
            context.printer.note(format_args!(
                "Read the settings of {}: {}.",
                client.title(),
                files.join(", ")
            ));
        }
        if let Some(root) = &self.root {
            let children = report.write_servers(&self.places, &root.servers, &trust, yes, context)?;
            if root.needs_change() && (!children.is_empty() || root.servers.candidates.is_empty()) {
                let program = crate::program::shared_name()?;
                let now = Clock::system().now();
                report.replaced = Some(root.replace(&self.places, &children, &program, now)?);
            }
        }
        report.print(context);
        Ok(report)
    }
}

/// Adds to an error the note that the file is unchanged.
fn untouched(error: SuiteError) -> Failure {
    let failure = Failure::from(error);
    match failure.hint {
        Some(_) => failure,
        None => failure.hint("nothing was changed; correct .mcp.json, or leave it alone with --no-import"),
    }
}

impl Report {
    /// Writes the servers into the workspace; returns the names of those imported or already present.
    fn write_servers(
        &mut self,
        places: &SuitePaths,
        servers: &Servers,
        trust: &TrustStore,
        yes: bool,
        context: &Context,
    ) -> Result<Vec<String>, Failure> {
        let mut children = Vec::new();
        for candidate in &servers.candidates {
            if let AddOutcome::Differs { file } = import(places, candidate)? {
                let problem = format!("another server of that name is described in {}", file.display());
                self.skipped.insert(candidate.original.clone(), problem);
                continue;
            }
            let template = candidate.file.launch_template(&candidate.name)?;
            let was_trusted = trust.state_of(&candidate.name, &template).is_trusted();
            let is_trusted = was_trusted || agrees(places, candidate, &template, yes, context);
            if is_trusted && !was_trusted {
                trust.grant_file(&candidate.name, &candidate.file)?;
            }
            for note in &candidate.notes {
                context.printer.note(format_args!("{}: {}", candidate.name, plain(note)));
            }
            self.servers.insert(candidate.name.clone(), is_trusted);
            children.push(candidate.name.clone());
        }
        self.skipped.extend(servers.skipped.clone());
        Ok(children)
    }

    fn print(&self, context: &Context) {
        if context.printer.is_json() {
            return;
        }
        let printer = context.printer;
        if !self.servers.is_empty() {
            let count = self.servers.len();
            let words = if count == 1 { "server, now one tool" } else { "servers, now one tool each" };
            printer.line(format_args!("Imported {count} {words}:"));
        }
        for (name, is_trusted) in &self.servers {
            let state = if *is_trusted {
                "trusted".to_owned()
            } else {
                format!("not trusted yet: switchboard suite trust {}", typed(name))
            };
            printer.line(format_args!("  {name:<20} {state}"));
        }
        if !self.servers.is_empty() {
            let count = self.servers.len();
            printer.line(format_args!(
                "  Expect tool lists of about {} tokens instead of {}; `switchboard suite warm` and then",
                count * SUITE_TOKENS,
                count * SERVER_TOKENS
            ));
            printer.line("  `switchboard suite savings` count what it is.");
        }
        for (name, problem) in &self.skipped {
            printer.line(format_args!("  {:<20} left where it is: {}", plain(name), plain(problem)));
        }
        if let Some(replaced) = &self.replaced {
            printer.line(format_args!("{} now starts Switchboard.", replaced.file.display()));
            printer.line(format_args!("  The old one is {};", replaced.backup.display()));
            printer.line("  `switchboard suite revert` puts it back.");
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let servers: Vec<Value> = self
            .servers
            .iter()
            .map(|(name, trusted)| json!({ "name": name, "state": if *trusted { "trusted" } else { "new" } }))
            .collect();
        let backup = self.replaced.as_ref().map(|replaced| replaced.backup.display().to_string());
        let count = self.servers.len();
        let expected = json!({ "flat": count * SERVER_TOKENS, "suites": count * SUITE_TOKENS });
        json!({ "servers": servers, "skipped": self.skipped, "backup": backup, "expected_tokens": expected })
    }
}

/// Returns true if the person trusts a server that came with the workspace.
///
/// A process of an agent, or one without a terminal, imports the server and leaves the decision to the person.
fn agrees(
    places: &SuitePaths,
    candidate: &Candidate,
    template: &LaunchTemplate,
    yes: bool,
    context: &Context,
) -> bool {
    if agent_evidence().is_some() {
        return false;
    }
    // The person already trusts a server that is in the settings of their own client.
    if yes || candidate.is_own || !can_ask(context) {
        return yes || candidate.is_own;
    }
    let file = places.child_file(&candidate.name);
    let folder = file.parent().zip(template.cwd.as_deref()).map(|(folder, cwd)| folder.join(cwd));
    let folder = folder.and_then(|folder| folder.canonicalize().ok());
    trust::show(context, &candidate.name, template, folder.as_deref(), &TrustState::New);
    ask(&format!("Trust {}?", candidate.name))
}
