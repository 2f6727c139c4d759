//! The command line, as a clap parser.
//!
//! Each verb's arguments are declared in the verb's own module.

mod deferred;
pub(crate) mod help;
pub(crate) mod options;
pub(crate) mod values;

use std::path::PathBuf;

use clap::{Args, FromArgMatches, Parser, Subcommand};

pub(crate) use self::deferred::{Deferred, Immediate};

use crate::commands::{
    ack, adopt, agents, audit, channel, claim, completions, doctor, guard, hook, inbox, init, install, mcp,
    reap, receipt, release, renew, reserve, resume, route, router, run, search, send, serve, suite, swarm,
    tail, team, thread, wait, watch, who, worker, workflow,
};

/// Let AI coding agents of different vendors exchange messages and share work.
///
/// A message is journaled on disk before it is acknowledged, then delivered to the recipient's mailbox in
/// `.switchboard/`. `switchboard receipt` shows its delivery status.
#[derive(Debug, Parser)]
#[command(
    name = "switchboard",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Addresses:  codex · team:backend · #general · alice@research · all@research · job:7/0 · all\n\
    Durations:  90s · 15m · 8h · 2d\n\
    Exit codes: 0 ok · 1 failed · 2 usage · 3 temporary, try again · 4 not allowed · 5 not found\n\n\
    `switchboard COMMAND --help` shows the options of a command, with examples."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the arguments of this process, with the verbs grouped under headings in the help.
    pub(crate) fn try_parse_grouped() -> Result<Self, clap::Error> {
        let mut command = help::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The options that every verb accepts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Print one JSON object per line on stdout instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    // Not clap's `env`: `init --from` has another meaning, and the variable must not set it.
    /// Act as this agent [default: $SWITCHBOARD_AGENT_NAME, or `human`]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) from: Option<String>,

    // Not clap's `env`: an empty variable counts as unset.
    /// Use the workspace in this folder [default: $SWITCHBOARD_WORKSPACE_ROOT, or the nearest parent folder with
    /// `.switchboard/`]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) workspace: Option<PathBuf>,

    /// Log more on stderr; twice for debug messages
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The verbs. [`help::GROUPS`] puts each visible one under a heading.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a workspace in this folder, and import the MCP servers of `.mcp.json`
    Init(Immediate<init::Init>),
    /// Send a message to an agent, a team, a channel or everyone
    Send(Deferred<send::Send>),
    /// Read a mailbox, oldest message first
    Inbox(Deferred<inbox::Inbox>),
    /// Acknowledge messages: move them to the archive and notify their senders
    Ack(Deferred<ack::Ack>),
    /// Wait until an unseen message arrives, and print it
    Wait(Deferred<wait::Wait>),
    /// Show the delivery status of a message, for each recipient
    Receipt(Deferred<receipt::ReceiptOf>),
    /// List, register, rename or remove agents, or set an agent's role or status
    Agents(Deferred<agents::Agents>),
    /// Create teams, add or remove members, and message each member
    Team(Deferred<team::Team>),
    /// Run a workflow, whose phases each need evidence to complete
    Workflow(Deferred<workflow::Workflow>),
    /// Claim a task so that no other agent takes it, or list claims
    Claim(Deferred<claim::Claim>),
    /// Extend your claim on a task
    Renew(Deferred<renew::Renew>),
    /// Release your claim on a task
    Release(Deferred<release::Release>),
    /// Reserve files you are editing, or list reservations
    Reserve(Deferred<reserve::Reserve>),
    /// Check that staged files are not reserved by another agent; installs as a Git hook
    Guard(Deferred<guard::Guard>),
    /// Show the newest messages of all agents, and follow new ones
    Tail(Deferred<tail::Tail>),
    /// Show a whole conversation
    Thread(Deferred<thread::Thread>),
    /// Post to channels, read them and archive old messages
    Channel(Deferred<channel::Channel>),
    /// Run a program that answers the messages to an agent in a channel
    Watch(Deferred<watch::Watch>),
    /// Show which agents are awake
    Who(Deferred<who::Who>),
    /// Search messages by their words
    Search(Deferred<search::Search>),
    /// List messages stopped by loop limits or budgets, or deliver them
    Resume(Deferred<resume::Resume>),
    /// Explain where a message to an address would go, and why
    Route(Deferred<route::RouteTo>),
    /// Run an agent's program in this terminal so that messages can be typed into it
    Run(Deferred<run::Run>),
    /// Add, trust and use MCP servers, each exposed as one tool
    Suite(Deferred<suite::Suite>),
    /// Run agents as worker processes, prompt them and follow their output
    Worker(Deferred<worker::Worker>),
    /// Let a program drive workers over NDJSON on stdin or a socket
    Router(Deferred<router::Router>),
    /// Exchange signed messages with agents of other owners
    Swarm(Deferred<swarm::Swarm>),
    /// Serve MCP on stdin and stdout, for an agent's client
    Mcp(Deferred<mcp::Mcp>),
    /// Add Switchboard's MCP server and hooks to the settings of clients
    Install(Deferred<install::Install>),
    /// Remove from clients' settings what `install` added
    Uninstall(Deferred<install::Uninstall>),
    /// Show new messages to an agent's model; called by the hooks of its client
    Hook(Deferred<hook::Hook>),
    /// Run the workspace's server: MCP over HTTP, deliveries, retries and repair
    Serve(Deferred<serve::Serve>),
    /// Verify the journal's chain of hashes, or export the journal
    Audit(Deferred<audit::Audit>),
    /// Adopt a database from another machine or a backup, after showing whose messages it holds
    Adopt(Deferred<adopt::Adopt>),
    /// Check files, database, permissions and locks, and repair them with --fix
    Doctor(Deferred<doctor::Doctor>),
    /// Kill child processes of a switchboard process that died
    #[command(hide = true)]
    Reap(Deferred<reap::Reap>),
    /// Print a completion script for your shell
    Completions(Deferred<completions::Completions>),
}

impl Command {
    /// Returns true if the verb finishes within milliseconds and serves no other client meanwhile.
    pub(crate) fn is_brief(&self) -> bool {
        match self {
            Self::Send(Deferred(send)) => !send.waits(),
            Self::Inbox(_)
            | Self::Ack(_)
            | Self::Receipt(_)
            | Self::Agents(_)
            | Self::Team(_)
            | Self::Thread(_)
            | Self::Who(_)
            | Self::Route(_) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
