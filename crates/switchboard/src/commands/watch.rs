//! `switchboard watch`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use door_channels::{Preset, PromptInput, WatcherConfig};
use jiff::SignedDuration;
use serde_json::json;
use switchboard_core::Name;
use tokio_util::sync::CancellationToken;

use crate::commands::channel::channel_named;
use crate::commands::mcp::stop_at_signals;
use crate::context::{Context, channel_config, run_channels};
use crate::failure::{Exit, Failure};

/// Let a program answer what is said to an agent in a channel: messages to it, those that mention it as @agent,
/// and those that begin with its name. Messages that came while no watcher ran are answered first.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The agent that answers
    #[arg(long, value_name = "NAME")]
    agent: String,

    /// The channel to watch
    #[arg(long, value_name = "NAME")]
    channel: String,

    /// A program that is known; with a command of your own, what its output looks like
    #[arg(long)]
    preset: Option<Known>,

    /// A file that says who the agent is, what it can do and what it must not
    #[arg(long, value_name = "FILE")]
    role: Option<PathBuf>,

    /// A file with what the agent should remember
    #[arg(long, value_name = "FILE")]
    memory: Option<PathBuf>,

    /// How many recent messages the program is shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    context: usize,

    /// Give the prompt as the last argument instead of on stdin
    #[arg(long)]
    argument: bool,

    /// Pass this variable on to the program, or all that begin with PREFIX_*; can be given several times
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,

    /// How many seconds the program may take
    #[arg(long, value_name = "S", default_value_t = 300)]
    timeout: u64,

    /// Leave texts alone that only begin with the agent's name
    #[arg(long)]
    no_starts_with: bool,

    /// Post failures to the channel as an `incident`; without it, only the log and the receipt of the message say so
    #[arg(long)]
    incidents: bool,

    /// How often a message is tried again after a failure
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,

    /// Leave messages unanswered that are older than so many hours
    #[arg(long, value_name = "H", default_value_t = 24)]
    max_age: u32,

    /// Most messages to catch up on
    #[arg(long, value_name = "N", default_value_t = 50)]
    backlog: usize,

    /// The program and its arguments; never given to a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

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
    // Before the first heartbeat: an agent whose program cannot run must not look awake.
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
    // Before anything is promised: the folder is there and the channel has its reader.
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
        return Err(Failure::new("no_command", Exit::Usage, "nothing is said about what answers")
            .hint("give a program after `--`, or --preset codex, claude or gemini"));
    }
    if args.argument {
        watcher.prompt_input = PromptInput::Argument;
    }
    watcher.role = args.role;
    watcher.memory = args.memory;
    watcher.context = args.context;
    watcher.timeout = Duration::from_secs(args.timeout);
    watcher.starts_with = !args.no_starts_with;
    watcher.incidents = args.incidents;
    watcher.retries = args.retries;
    watcher.max_age = SignedDuration::from_hours(i64::from(args.max_age));
    watcher.backlog = args.backlog;
    Ok(watcher)
}
