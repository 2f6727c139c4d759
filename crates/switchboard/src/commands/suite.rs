//! The verb `switchboard suite`.

mod add;
mod call;
mod introspect;
mod list;
mod logs;
mod pins;
mod remove;
mod revert;
mod savings;
pub(crate) mod trust;
mod unwrap;
mod warm;
mod wrap;
mod wrapper;

use clap::{Args, Subcommand};
use door_suites::{Discovery, SuitePaths, Suites, discover};

use crate::cli::help::examples;
use crate::config::Settings;
use crate::context::Context;
use crate::failure::Failure;

/// Examples, and the token counts of four well-known servers. `switchboard suite savings` measures those of the
/// workspace.
const HELP: &str = concat!(
    examples![
        "switchboard suite",
        "switchboard suite add memory -- npx -y @modelcontextprotocol/server-memory",
        "switchboard suite trust",
    ],
    "\n\n\
Tokens (o200k)      one by one   suites   introspecting all
  everything              1708       57                 337
  filesystem              2823       57                 390
  git                     1464       55                 306
  memory                  2378       55                 244
  together                8366      255                1277"
);

/// Add, trust and use MCP servers, each exposed as one tool.
///
/// Each server becomes one tool of `switchboard mcp`, which lists and calls the server's own tools on demand.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Suite {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the servers, whether they are trusted, and what is wrong with them (the default)
    #[command(after_long_help = examples!["switchboard suite list"])]
    List,
    Add(add::Add),
    Remove(remove::Remove),
    Trust(trust::Trust),
    Pins(pins::Pins),
    Introspect(introspect::Introspect),
    Call(call::Call),
    Warm(warm::Warm),
    Savings(savings::Savings),
    Logs(logs::Logs),
    Revert(revert::Revert),
    Wrap(wrap::Wrap),
    Unwrap(unwrap::Unwrap),
    #[command(hide = true)]
    Wrapper(wrapper::Wrapper),
}

pub(crate) async fn run(args: Suite, context: Context) -> Result<(), Failure> {
    match args.command.unwrap_or(Verb::List) {
        Verb::List => list::run(context).await,
        Verb::Introspect(args) => introspect::run(args, context).await,
        Verb::Call(args) => call::run(args, context).await,
        Verb::Warm(args) => warm::run(args, context).await,
        Verb::Savings(args) => savings::run(args, context).await,
        Verb::Wrapper(args) => wrapper::run(&args, &context).await,
        other => about_files(other, context).await,
    }
}

/// Runs a verb that blocks on files and locks, off the event loop's thread.
async fn about_files(verb: Verb, context: Context) -> Result<(), Failure> {
    let workspace = Workspace::open(&context)?;
    let work = move || match verb {
        Verb::Add(args) => add::run(args, &workspace, &context),
        Verb::Remove(args) => remove::run(&args, &workspace, &context),
        Verb::Trust(args) => trust::run(&args, &workspace, &context),
        Verb::Pins(args) => pins::run(args, &workspace, &context),
        Verb::Logs(args) => logs::run(&args, &workspace, &context),
        Verb::Revert(args) => revert::run(&args, &workspace, &context),
        Verb::Wrap(args) => wrap::run(&args, &workspace, &context),
        Verb::Unwrap(args) => unwrap::run(&args, &workspace, &context),
        _ => Ok(()),
    };
    tokio::task::spawn_blocking(work).await.map_err(anyhow::Error::from)?
}

/// Opens the suites of the workspace for a verb.
async fn open(context: &Context) -> Result<Suites, Failure> {
    context.quiet_suites(&context.settings()?).await
}

/// The workspace for the verbs of `suite`.
pub(crate) struct Workspace {
    pub(crate) places: SuitePaths,
    pub(crate) settings: Settings,
}

impl Workspace {
    pub(crate) fn open(context: &Context) -> Result<Self, Failure> {
        Ok(Self { places: context.suite_folders()?, settings: context.settings()? })
    }

    pub(crate) fn discover(&self) -> Discovery {
        discover(&self.settings.suites, &self.places)
    }

    /// Formats a path for display, relative to the workspace if it is inside.
    pub(crate) fn shown(&self, path: &std::path::Path) -> String {
        path.strip_prefix(&self.places.workspace).unwrap_or(path).display().to_string()
    }
}

/// Quotes a name so that it can be pasted into a shell.
pub(crate) fn typed(name: &str) -> String {
    if name.contains(' ') { format!("\"{name}\"") } else { name.to_owned() }
}
