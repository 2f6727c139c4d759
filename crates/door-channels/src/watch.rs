//! Watchers: agents that answer by themselves ("Watcher Pattern").
//!
//! A watcher works off what the hub has delivered to its agent in its channel and the agent is not done with:
//! the queue is in the journal, so what came while it was down is still there. `mention.rs` says what is for
//! the agent, `prompt.rs` what the program is told, `program.rs` runs it, `answer.rs` finds the answer in its
//! output, `lease.rs` sees to it that one message has one answer, `queue.rs` finds what waits.

mod answer;
mod breaker;
mod lease;
mod log;
mod mention;
mod posting;
mod program;
mod prompt;
mod queue;
mod watcher;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_core::Name;
use switchboard_hub::HUB_NAME;
use switchboard_sys::process::{ProgramProblem, check_program};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::ids::current_id;
use crate::presence::HeartbeatWriter;

pub use self::mention::is_mentioned;

/// One watcher: whose it is, where it listens and what answers.
#[derive(Debug, Clone)]
pub struct WatcherConfig {
    /// The agent that answers.
    pub agent: Name,
    /// The id that was given for it, which may be a deprecated one.
    given: Name,
    /// The channel it watches.
    pub channel: Name,
    /// The program and its arguments. Never given to a shell.
    pub command: Vec<String>,
    /// How the program is told.
    pub prompt_input: PromptInput,
    /// What its output looks like.
    pub format: OutputFormat,
    /// A file that says who the agent is, what it can do and what it must not.
    pub role: Option<PathBuf>,
    /// A file with what the agent should remember; its first lines are part of every prompt.
    pub memory: Option<PathBuf>,
    /// How many recent messages of the channel it is shown.
    pub context: usize,
    /// The folder that the program starts in; ours without it.
    pub folder: Option<PathBuf>,
    /// Variables that the program gets beside the usual ones, by name or as `PREFIX_*`.
    pub env: Vec<String>,
    /// How long the program may take. The scripts of old killed it after five minutes.
    pub timeout: Duration,
    /// Whether text that begins with the agent's id is for the agent: the protocol's third rule.
    pub starts_with: bool,
    /// Whether a failure is also posted to the channel, as an `incident`. In the protocol it is not: the log and the
    /// receipt of the message say so.
    pub incidents: bool,
    /// How often a message is tried again after a failure.
    pub retries: u32,
    /// Messages older than this are not answered any more.
    pub max_age: SignedDuration,
    /// Most messages from while it was down that are answered: the newest.
    pub backlog: usize,
}

/// How a program is told what to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptInput {
    /// On its stdin, which then ends.
    Stdin,
    /// As one argument after all others. It begins with words of ours, so no message can become a flag.
    Argument,
}

/// What the output of a program looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// All of stdout is the answer.
    Plain,
    /// The events of `codex exec --json`, one a line.
    Codex,
    /// The object of `claude -p --output-format json`.
    Claude,
    /// The object of `gemini -o json`.
    Gemini,
}

/// A program that is known, with how to call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// Codex CLI.
    Codex,
    /// Claude Code.
    Claude,
    /// Gemini CLI.
    Gemini,
}

impl Preset {
    /// All presets, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("codex", Self::Codex), ("claude", Self::Claude), ("gemini", Self::Gemini)];

    /// The preset of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, preset)| preset)
    }

    /// The command line, which reads the prompt from stdin.
    pub fn command(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Codex => &["codex", "exec", "--json", "-"],
            Self::Claude => &["claude", "-p", "--output-format", "json"],
            Self::Gemini => &["gemini", "-o", "json"],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// What its output looks like.
    pub fn format(self) -> OutputFormat {
        match self {
            Self::Codex => OutputFormat::Codex,
            Self::Claude => OutputFormat::Claude,
            Self::Gemini => OutputFormat::Gemini,
        }
    }

    /// The variables it needs to find its account.
    pub fn env(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Codex => &["CODEX_*", "OPENAI_*"],
            Self::Claude => &["CLAUDE_*", "ANTHROPIC_*"],
            Self::Gemini => &["GEMINI_*", "GOOGLE_*"],
        };
        names.iter().map(|&name| name.to_owned()).collect()
    }
}

impl WatcherConfig {
    /// A watcher that runs `command`, told on stdin, whose stdout is the answer.
    ///
    /// A deprecated agent id stands for the current one.
    pub fn new(agent: Name, channel: Name, command: Vec<String>) -> Self {
        let given = agent;
        Self {
            agent: Name::parse(current_id(given.as_str())).unwrap_or_else(|_| given.clone()),
            given,
            channel,
            command,
            prompt_input: PromptInput::Stdin,
            format: OutputFormat::Plain,
            role: None,
            memory: None,
            context: 10,
            folder: None,
            env: Vec::new(),
            timeout: Duration::from_mins(5),
            starts_with: true,
            incidents: false,
            retries: 0,
            max_age: SignedDuration::from_hours(24),
            backlog: 50,
        }
    }

    /// The same, if it can work: what is wrong with it is told before anything waits for an answer.
    pub fn validate(self) -> Result<Self, ChannelError> {
        let refused = |field, problem: String| Err(ChannelError::Field { field, problem });
        if self.agent.is_human() || self.agent.as_str().eq_ignore_ascii_case(HUB_NAME) {
            return refused("agent", format!("is '{}', for whom no program answers", self.agent));
        }
        if self.timeout.is_zero() {
            return refused("timeout", "is 0; a program needs a second at least".to_owned());
        }
        let is_name = |name: &&String| !name.is_empty() && !name.contains('=');
        if let Some(bad) = self.env.iter().find(|name| !is_name(name)) {
            return refused("env", format!("has '{}', which is no variable's name", bad.escape_debug()));
        }
        Ok(self)
    }

    /// Why its program cannot be started.
    pub fn program_error(&self) -> Option<ProgramProblem> {
        let folder = self.folder.as_deref().unwrap_or(Path::new(""));
        check_program(self.command.first()?.as_ref(), folder).err()
    }

    /// The files it is told to read and that are not there.
    pub fn missing_files(&self) -> impl Iterator<Item = &Path> {
        [&self.role, &self.memory].into_iter().flatten().map(PathBuf::as_path).filter(|path| !path.is_file())
    }

    /// The same with everything that a preset says; a command that was given stays.
    #[must_use]
    pub fn with_preset(mut self, preset: Preset) -> Self {
        if self.command.is_empty() {
            self.command = preset.command();
        }
        self.format = preset.format();
        self.env.extend(preset.env());
        self
    }
}

/// Runs all configured watchers until `shutdown`; an agent gives one heartbeat, wherever it listens.
pub(crate) async fn run_all(channels: &Channels, shutdown: CancellationToken) {
    let mut by_agent: BTreeMap<Name, Vec<WatcherConfig>> = BTreeMap::new();
    for watcher in &channels.config().watchers {
        let WatcherConfig { agent, given, .. } = watcher;
        if agent != given {
            tracing::warn!("the agent id '{given}' is deprecated; watching as '{agent}'");
        }
        for missing in watcher.missing_files() {
            tracing::warn!(agent = %watcher.agent, file = %missing.display(), "there is no such file; the prompt goes without it");
        }
        // Its agent would look awake and answer nothing.
        if let Some(problem) = watcher.program_error() {
            tracing::error!(agent = %watcher.agent, channel = %watcher.channel, "the watcher was not started: {problem}");
            continue;
        }
        by_agent.entry(watcher.agent.clone()).or_default().push(watcher.clone());
    }
    let mut tasks = JoinSet::new();
    for (agent, watchers) in by_agent {
        let files: Vec<&str> = watchers.iter().map(|watcher| watcher.channel.as_str()).collect();
        let heartbeat_writer = HeartbeatWriter::new(channels.tree().clone(), agent, files.join(","));
        // The heart stops after the work, so that the last thing said is goodbye.
        let (hub, every, heart) =
            (channels.hub().clone(), channels.config().heartbeat, CancellationToken::new());
        let (beating, stop) = (heartbeat_writer.clone(), heart.clone());
        tasks.spawn(async move { beating.run(every, &hub, stop).await });
        let (channels, shutdown) = (channels.clone(), shutdown.clone());
        tasks.spawn(async move {
            let mut working = JoinSet::new();
            for watcher in watchers {
                let watcher = watcher::Watcher::new(channels.clone(), watcher, heartbeat_writer.clone());
                let shutdown = shutdown.clone();
                working.spawn(async move { watcher.run(shutdown).await });
            }
            while working.join_next().await.is_some() {}
            heart.cancel();
        });
    }
    while tasks.join_next().await.is_some() {}
}
