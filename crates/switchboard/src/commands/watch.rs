//! The verb `switchboard watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use door_channels::{Preset, PromptInput, WatcherConfig};
use jiff::SignedDuration;
use serde_json::json;
use switchboard_core::Name;
use tokio_util::sync::CancellationToken;

use crate::cli::help::examples;
use crate::cli::values::{duration, number};
use crate::commands::channel::channel_named;
use crate::commands::mcp::stop_at_signals;
use crate::context::{Context, channel_config, run_channels};
use crate::failure::{Exit, Failure};

/// Run a program that answers the messages to an agent in a channel.
///
/// The program answers messages addressed to the agent, those that mention it as @agent, and those that start with its
/// name. Messages that came while no watcher ran are answered first.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard watch --agent codex --channel general --preset codex",
    "switchboard watch --agent qc-1 --channel general --timeout 10m -- ./review.sh --strict",
])]
pub(crate) struct Watch {
    /// The agent that answers
    #[arg(long, value_name = "NAME")]
    agent: String,

    /// The channel
    #[arg(long, value_name = "NAME")]
    channel: String,

    /// Run a known program; with a command of your own, parse its output like that program's
    #[arg(long)]
    preset: Option<Known>,

    /// Read from this file who the agent is, what it can do and what it must not do
    #[arg(long, value_name = "FILE")]
    role: Option<PathBuf>,

    /// Read from this file what the agent should remember
    #[arg(long, value_name = "FILE")]
    memory: Option<PathBuf>,

    /// Show the program this many recent messages
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::<usize>)]
    context: usize,

    /// Pass the prompt as the last argument instead of on stdin
    #[arg(long)]
    argument: bool,

    /// Pass this variable to the program, or all that start with PREFIX_* (repeatable)
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,

    /// Kill the program if it runs longer than this
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,

    /// Ignore messages that only start with the agent's name
    #[arg(long)]
    no_starts_with: bool,

    /// Post failures to the channel as an `incident`; otherwise only the log and the message's receipt report them
    #[arg(long)]
    incidents: bool,

    /// Retry a message this many times after a failure
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::<u32>)]
    retries: u32,

    /// Ignore messages older than this
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = duration)]
    max_age: Duration,

    /// Answer at most this many missed messages
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number::<usize>)]
    backlog: usize,

    /// The program and its arguments, after `--`; no shell interprets them
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The programs with a preset.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Known {
    Codex,
    Claude,
    Gemini,
}

pub(crate) async fn run(args: Watch, context: Context) -> Result<(), Failure> {
    let watcher = watcher(args)?.validate()?;
    if let Some(missing) = watcher.missing_files().next() {
        let message = format!("there is no file {}", missing.display());
        return Err(Failure::new("no_file", Exit::NotFound, message).hint("check --role and --memory"));
    }
    // Check the program before the first heartbeat: an agent whose program cannot run must not look awake.
    if let Some(problem) = watcher.program_error() {
        let hint = format!("{}, or give another program after `--`", problem.next_step());
        return Err(Failure::new("no_program", Exit::NotFound, problem.to_string()).hint(hint));
    }
    let settings = context.settings()?;
    let open = context.open_running().await?;
    let shutdown = CancellationToken::new();
    stop_at_signals(shutdown.clone())?;
    let (agent, channel) = (watcher.agent.clone(), watcher.channel.clone());
    let mut config = channel_config(&settings, &open.workspace);
    config.watchers = vec![watcher];
    // Open the channels before the first output: the folder must exist, and the channel must have its reader.
    let channels = door_channels::Channels::open(config.clone(), open.workspace.hub().clone()).await?;
    channels.check_writable().await?;
    channels.register_watchers().await?;
    let channels = run_channels(config, open.workspace.hub().clone(), shutdown).await?;
    if context.printer.is_json() {
        let pid = std::process::id();
        context.printer.object(&json!({ "agent": agent.as_str(), "channel": channel.as_str(), "pid": pid }));
    } else {
        context.printer.line(format_args!("{agent} watches #{channel}. Stop with Ctrl-C."));
    }
    let _ = channels.await;
    open.close().await;
    Ok(())
}

fn watcher(args: Watch) -> Result<WatcherConfig, Failure> {
    let (agent, channel) = (Name::parse(&args.agent)?, channel_named(&args.channel)?);
    let mut watcher = WatcherConfig::new(agent, channel, args.command);
    watcher.env = args.env;
    if let Some(known) = args.preset {
        watcher = watcher.with_preset(match known {
            Known::Codex => Preset::Codex,
            Known::Claude => Preset::Claude,
            Known::Gemini => Preset::Gemini,
        });
    }
    if watcher.command.is_empty() {
        return Err(Failure::new("no_command", Exit::Usage, "no program is given that answers")
            .hint("give a program after `--`, or --preset codex, claude or gemini"));
    }
    if args.argument {
        watcher.prompt_input = PromptInput::Argument;
    }
    watcher.role = args.role;
    watcher.memory = args.memory;
    watcher.context = args.context;
    watcher.timeout = args.timeout;
    watcher.starts_with = !args.no_starts_with;
    watcher.incidents = args.incidents;
    watcher.retries = args.retries;
    watcher.max_age = SignedDuration::try_from(args.max_age).map_err(anyhow::Error::from)?;
    watcher.backlog = args.backlog;
    Ok(watcher)
}
