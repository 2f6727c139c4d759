//! The command line as clap sees it. Each verb's arguments stand with the verb.

mod later;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::later::Later;

use crate::commands::{
    ack, adopt, agents, audit, channel, claim, completions, doctor, guard, hook, inbox, init, install, mcp,
    receipt, release, renew, reserve, resume, route, router, run, search, send, sentinel, serve, suite,
    swarm, tail, team, thread, wait, watch, who, worker, workflow,
};

/// AI coding agents of different vendors talk to each other.
///
/// Messages are journaled before they are acknowledged, delivered to the recipient's mailbox in
/// `.switchboard/`, and answered with a receipt that never claims more than is true.
#[derive(Debug, Parser)]
#[command(
    name = "switchboard",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Addresses: codex · team:backend · #general · alice@research · all@research · job:7/0 · all\n\
    Exit codes: 0 ok · 1 failed · 2 usage · 3 temporary, try again · 4 not allowed · 5 not found"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every verb understands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// One JSON object per line on stdout instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    // Not `env`: `init --from` is something else, and the variable must not leak into it.
    /// Who you are; without it `$SWITCHBOARD_AGENT_NAME`, or `human`
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) from: Option<String>,

    // Not `env`: a variable that is empty counts as not set.
    /// The workspace; without it `$SWITCHBOARD_WORKSPACE_ROOT`, or the nearest folder upward with `.switchboard/`
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Tell more on stderr; twice for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // At once: its `--from` is its own, which clap must know before it hands the global one on.
    /// Make a workspace here, and take over the MCP servers of `.mcp.json`
    Init(init::Init),
    /// Send a message to an agent, a team or everyone
    Send(Later<send::Send>),
    /// Read a mailbox; nothing is consumed
    Inbox(Later<inbox::Inbox>),
    /// Say that you are done with a message, and move it to the archive
    Ack(Later<ack::Ack>),
    /// Wait until a message arrives
    Wait(Later<wait::Wait>),
    /// Ask what became of a message
    Receipt(Later<receipt::ReceiptOf>),
    /// List, register, rename or remove agents, or set what one is doing
    Agents(Later<agents::Agents>),
    /// Make teams and say who belongs to them
    Team(Later<team::Team>),
    /// Work in phases, each of which is done when its evidence is there
    Workflow(Later<workflow::Workflow>),
    /// Take a task on, so that nobody else does; or list who has which
    Claim(Later<claim::Claim>),
    /// Keep a task that you have taken on for longer
    Renew(Later<renew::Renew>),
    /// Give back a task that you have taken on
    Release(Later<release::Release>),
    /// Say which files you work at; or list who works at which
    Reserve(Later<reserve::Reserve>),
    /// Check that what is about to be committed is nobody else's; a hook for Git
    Guard(Later<guard::Guard>),
    /// Show the newest messages of everyone, and follow them
    Tail(Later<tail::Tail>),
    /// Show a whole conversation
    Thread(Later<thread::Thread>),
    /// Post to channels and read them
    Channel(Later<channel::Channel>),
    /// Let a program answer what is said to an agent in a channel
    Watch(Later<watch::Watch>),
    /// Show who is awake, whichever door they are behind
    Who(Later<who::Who>),
    /// Find messages by words in them
    Search(Later<search::Search>),
    /// List what the rules against storms and costs have stopped, or let it go on
    Resume(Later<resume::Resume>),
    /// Explain where a message to an address would go, and why
    Route(Later<route::RouteTo>),
    /// Run an agent's program in this terminal, so that mail can be typed into it
    Run(Later<run::Run>),
    /// Add, trust and use MCP servers, each folded into one tool
    Suite(Later<suite::Suite>),
    /// Run agents as workers, give them prompts and follow what they do
    Worker(Later<worker::Worker>),
    /// Let a program drive workers over NDJSON
    Router(Later<router::Router>),
    /// Talk with agents of other owners: keys, invites, members, signed messages
    Swarm(Later<swarm::Swarm>),
    /// Serve MCP on stdin and stdout, for an agent's client
    Mcp(Later<mcp::Mcp>),
    /// Write our MCP server and hooks into the settings of clients
    Install(Later<install::Install>),
    /// Take out of clients' settings what `install` wrote
    Uninstall(Later<install::Uninstall>),
    /// Show new mail to an agent's model: what a hook of its client calls
    Hook(Later<hook::Hook>),
    /// Keep the workspace going: MCP over HTTP, dropped files, deliveries, repair
    Serve(Later<serve::Serve>),
    /// Check that the journal is what was written, and export it
    Audit(Later<audit::Audit>),
    /// Use a database that came from elsewhere, once you have seen whose messages it holds
    Adopt(Later<adopt::Adopt>),
    /// Check files, database, permissions and locks; changes nothing without --fix
    Doctor(Later<doctor::Doctor>),
    /// Kill child processes of a switchboard process that died
    #[command(hide = true)]
    Sentinel(Later<sentinel::Sentinel>),
    /// Print a completion script for your shell
    Completions(Later<completions::Completions>),
}

impl Command {
    /// Whether the verb does one thing in a few milliseconds and serves no other client meanwhile.
    pub(crate) fn is_brief(&self) -> bool {
        match self {
            Self::Send(Later(send)) => !send.waits(),
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
