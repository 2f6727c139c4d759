//! Watchers: agents that answer automatically ("Watcher Pattern").
//!
//! A watcher processes the pending deliveries of its agent in its channel. The queue is in the journal, so messages
//! that arrived while the watcher was down are still there. `mention.rs` detects mentions, `prompt.rs` builds the
//! prompt, `program.rs` runs the program, `answer.rs` extracts the answer, `lease.rs` ensures one answer per message,
//! `queue.rs` finds pending messages.

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
use switchboard_sys::process::{ProgramError, check_program};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::ids::current_id;
use crate::presence::HeartbeatWriter;

pub use self::mention::is_mentioned;

/// Configuration of one watcher.
#[derive(Debug, Clone)]
pub struct WatcherConfig {
    /// Agent that answers.
    pub agent: Name,
    /// Configured id of the agent, which may be deprecated.
    typed_name: Name,
    /// Channel that the agent watches.
    pub channel: Name,
    /// Program and arguments, which are never passed to a shell.
    pub command: Vec<String>,
    /// How the program receives the prompt.
    pub prompt_input: PromptInput,
    /// Output format of the program.
    pub format: OutputFormat,
    /// File with the agent's role: identity, abilities and limits.
    pub role: Option<PathBuf>,
    /// File with the agent's memory. Its first lines are part of every prompt.
    pub memory: Option<PathBuf>,
    /// Number of recent channel messages in the prompt.
    pub context: usize,
    /// Working directory of the program; by default that of this process.
    pub folder: Option<PathBuf>,
    /// Environment variables that the program gets in addition to the defaults, by name or as `PREFIX_*`.
    pub env: Vec<String>,
    /// Timeout of one run of the program. The default is five minutes, as in the protocol's scripts.
    pub timeout: Duration,
    /// True if a text that starts with the agent's id is for the agent: the third rule of the protocol.
    pub starts_with: bool,
    /// True if a failure is also posted to the channel as an `incident`, which is an extension of the protocol.
    ///
    /// The log and the receipt record every failure.
    pub incidents: bool,
    /// Maximum number of retries after a failure.
    pub retries: u32,
    /// Maximum age of a message that is answered.
    pub max_age: SignedDuration,
    /// Maximum number of messages from the watcher's downtime that are answered: the newest ones.
    pub backlog: usize,
}

/// How a program receives the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptInput {
    /// The program reads the prompt from stdin, up to the end of file.
    Stdin,
    /// The prompt is the last argument. It starts with fixed text, so that no message can become a flag.
    Argument,
}

/// Output format of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// All of stdout is the answer.
    Plain,
    /// Event lines of `codex exec --json`.
    Codex,
    /// JSON object of `claude -p --output-format json`.
    Claude,
    /// JSON object of `gemini -o json`.
    Gemini,
}

/// Built-in configuration of a known program.
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

    /// Returns the preset of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, preset)| preset)
    }

    /// Returns the command line, which reads the prompt from stdin.
    pub fn command(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Codex => &["codex", "exec", "--json", "-"],
            Self::Claude => &["claude", "-p", "--output-format", "json"],
            Self::Gemini => &["gemini", "-o", "json"],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Returns the output format.
    pub fn format(self) -> OutputFormat {
        match self {
            Self::Codex => OutputFormat::Codex,
            Self::Claude => OutputFormat::Claude,
            Self::Gemini => OutputFormat::Gemini,
        }
    }

    /// Returns the environment variables that the program needs to find its account.
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
    /// Creates a watcher that runs `command` with the prompt on stdin and stdout as the answer.
    ///
    /// A deprecated agent id is replaced by the current one.
    pub fn new(agent: Name, channel: Name, command: Vec<String>) -> Self {
        let typed_name = agent;
        Self {
            agent: Name::parse(current_id(typed_name.as_str())).unwrap_or_else(|_| typed_name.clone()),
            typed_name,
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

    /// Validates the configuration and returns it unchanged, so that errors appear before a message waits for an
    /// answer.
    pub fn validate(self) -> Result<Self, ChannelError> {
        let refused = |field, problem: String| Err(ChannelError::Field { field, problem });
        if self.agent.is_human() || self.agent.as_str().eq_ignore_ascii_case(HUB_NAME) {
            return refused(
                "agent",
                format!("is '{}', but no program may answer for that agent", self.agent),
            );
        }
        if self.timeout.is_zero() {
            return refused("timeout", "is 0, but a program needs at least 1 second".to_owned());
        }
        let is_name = |name: &&String| !name.is_empty() && !name.contains('=');
        if let Some(bad) = self.env.iter().find(|name| !is_name(name)) {
            return refused(
                "env",
                format!("has '{}', which is not a valid variable name", bad.escape_debug()),
            );
        }
        Ok(self)
    }

    /// Returns the reason why the program cannot be started, if any.
    pub fn program_error(&self) -> Option<ProgramError> {
        let folder = self.folder.as_deref().unwrap_or(Path::new(""));
        check_program(self.command.first()?.as_ref(), folder).err()
    }

    /// Returns the configured files that do not exist.
    pub fn missing_files(&self) -> impl Iterator<Item = &Path> {
        [&self.role, &self.memory].into_iter().flatten().map(PathBuf::as_path).filter(|path| !path.is_file())
    }

    /// Applies a preset. A configured command is not replaced.
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

/// Runs all configured watchers until `shutdown`. Each agent has one heartbeat, however many channels it
/// watches.
pub(crate) async fn run_all(channels: &Channels, shutdown: CancellationToken) {
    let mut by_agent: BTreeMap<Name, Vec<WatcherConfig>> = BTreeMap::new();
    for watcher in &channels.config().watchers {
        let WatcherConfig { agent, typed_name, .. } = watcher;
        if agent != typed_name {
            tracing::warn!("the agent id '{typed_name}' is deprecated; watching as '{agent}'");
        }
        for missing in watcher.missing_files() {
            tracing::warn!(agent = %watcher.agent, file = %missing.display(), "the file does not exist; the prompt is sent without it");
        }
        // Do not start this watcher: its agent would look awake and answer nothing.
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
        // The heartbeat stops after the work, so that the offline state is written last.
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
