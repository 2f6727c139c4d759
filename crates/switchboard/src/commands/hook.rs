//! The verb `switchboard hook`, which the hooks of clients run.
//!
//! `input` parses the client's JSON on stdin, `output` renders the response, `agent` finds the agent whose messages are
//! shown, and `idle` waits for messages while a session is idle. A hook must never disturb the client: without a
//! workspace or an agent there is no output, and no error ends with exit code 2, by which a hook blocks the client's
//! current action.

mod agent;
mod idle;
mod input;
mod output;

use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use door_workspace::{ChatRegistration, PushPolicy, Workspace};
use switchboard_core::AgentId;
use switchboard_sys::lineage::LaunchKind;

use self::input::Input;
use self::output::Answer;
use crate::cli::help::examples;
use crate::cli::values::duration;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::person::lineage;

/// Maximum bytes of text in a hook's response: Claude Code truncates at 10,000 characters, Codex at about as many.
const MAX_BYTES: usize = 9_500;

/// Show new messages to an agent's model; called by the hooks of its client.
///
/// The client's JSON is read from stdin. `switchboard install claude` or `codex` writes these calls into the client's
/// settings.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard hook claude session-start",
    "switchboard hook claude idle --timeout 8h",
])]
pub(crate) struct Hook {
    /// The client that runs the hook
    #[arg(value_enum)]
    client: Client,

    /// The event that triggered the hook
    #[arg(value_enum)]
    event: Event,

    /// The agent, unless --from, `switchboard run` or SWITCHBOARD_AGENT_NAME names one [default: this client's in the
    /// session's folder]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Stop waiting after this long [default: 1d; only for the event idle]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = duration)]
    timeout: Option<Duration>,
}

/// The clients whose hooks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    Claude,
    Codex,
}

/// The events that trigger a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Event {
    /// A session starts
    SessionStart,
    /// The person submitted a prompt
    UserPrompt,
    /// A tool returned its result
    PostTool,
    /// The model is about to stop
    Stop,
    /// The session is idle: wait for a message, then wake it (Claude Code, asyncRewake)
    Idle,
}

impl Client {
    /// Returns the client's name in `switchboard install NAME`, which is also its agent's default name.
    pub(crate) fn cli_name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// Returns the interface name with which the client's agents register.
    fn interface(self) -> &'static str {
        match self {
            Self::Claude => "claude-code",
            Self::Codex => "codex",
        }
    }
}

impl Event {
    /// Returns the name of the event in the client's settings. `Idle` follows either of two client events.
    pub(crate) fn client_name(self) -> &'static str {
        match self {
            Self::SessionStart => "SessionStart",
            Self::UserPrompt => "UserPromptSubmit",
            Self::PostTool => "PostToolUse",
            Self::Stop | Self::Idle => "Stop",
        }
    }

    /// Returns the name of the event on the command line of `switchboard hook`.
    pub(crate) fn cli_name(self) -> &'static str {
        match self {
            Self::SessionStart => "session-start",
            Self::UserPrompt => "user-prompt",
            Self::PostTool => "post-tool",
            Self::Stop => "stop",
            Self::Idle => "idle",
        }
    }

    /// Returns the agent's status after this event; `None` if the event does not change it.
    fn status(self) -> Option<&'static str> {
        match self {
            Self::SessionStart | Self::Stop | Self::Idle => Some("idle"),
            Self::UserPrompt => Some("working"),
            Self::PostTool => None,
        }
    }
}

pub(crate) async fn run(args: Hook, context: Context) -> Result<(), Failure> {
    // Exit code 2 would block the client's current action, so another code is returned.
    run_hook(args, context).await.map_err(|failure| match failure.exit {
        Exit::Usage => Failure { exit: Exit::Failed, ..failure },
        _ => failure,
    })
}

async fn run_hook(args: Hook, context: Context) -> Result<(), Failure> {
    if args.event == Event::Idle && args.client != Client::Claude {
        return Err(Failure::new("no_such_hook", Exit::Failed, "only Claude Code has hooks that wake it")
            .hint(
                "an idle Codex is reached as a worker, or in a terminal by `switchboard run --notify-mail`",
            ));
    }
    // A worker receives its messages as prompts, so its hooks print none.
    let is_worker = lineage().launch().is_some_and(|launch| launch.kind == LaunchKind::Worker);
    if is_worker || (args.event == Event::Idle && !idle::can_wake()) {
        return Ok(());
    }
    let input = Input::read(args.event)?;
    // The messages would be shown to the subagent's model and never to the main model.
    if input.is_of_a_subagent() {
        return Ok(());
    }
    let Some(context) = context.at(input.cwd.as_deref().map(Path::new))? else { return Ok(()) };
    if args.event == Event::Idle {
        return idle::run(&args, &input, &context).await;
    }
    let workspace = context.open().await?;
    if let Some(agent) = agent::of(args.client, args.agent.as_deref(), &context, &workspace).await? {
        print_digest(&args, &input, &workspace, &agent).await?;
    }
    workspace.close().await;
    Ok(())
}

/// Prints a digest of new messages in the form that the client's hook expects.
async fn print_digest(
    args: &Hook,
    input: &Input,
    workspace: &Workspace,
    agent: &AgentId,
) -> Result<(), Failure> {
    register_if_unknown(args.client, workspace, agent).await?;
    // Ingest files that were dropped a moment ago: without `serve`, no other process may have done so.
    workspace.scan_mailbox(agent).await?;
    let again = args.event == Event::Stop && !input.stop_hook_active;
    let digest =
        workspace.digest(agent, PushPolicy { max_bytes: MAX_BYTES, include_announced: again }).await?;
    let stays_busy = digest.is_some() && args.event == Event::Stop;
    if let Some(digest) = digest {
        Answer::new(args.event, &digest.text).print().map_err(anyhow::Error::from)?;
        workspace.finish_digest(digest).await?;
    }
    match args.event.status() {
        Some(status) if !stays_busy => workspace.set_status(agent, status, None).await?,
        _ => workspace.record_heartbeat(agent).await,
    }
    Ok(())
}

/// Registers an agent that is known only from a hook, so that other agents can write to it.
async fn register_if_unknown(client: Client, workspace: &Workspace, agent: &AgentId) -> Result<(), Failure> {
    if workspace.hub().directory().await?.agent(agent).is_none() {
        let new = ChatRegistration::new(agent.name.clone(), client.interface());
        workspace.register_chat_agent(new).await?;
    }
    Ok(())
}
