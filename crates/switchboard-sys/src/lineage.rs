//! Lineage of a process: whether an agent's program started it, and which agent that is.
//!
//! Two things tell. The environment, which a program hands on to all that it starts, also when those leave its process
//! tree; and the process tree itself, which a program cannot change by clearing the environment. A process that leaves
//! the tree and clears its environment is not recognised.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use switchboard_core::HUMAN;

use crate::owner::Owner;
use crate::platform::{self, Environment, ProcessInfo};

/// The variable that names the agent.
pub const AGENT_NAME: &str = "SWITCHBOARD_AGENT_NAME";

/// The variable by which a launcher marks the program that it starts for an agent.
pub const LAUNCHER: &str = "SWITCHBOARD_LAUNCHER";

/// The file name of this program, whose processes are launchers and servers of agents.
pub(crate) const PROGRAM: &str = "switchboard";

/// The verb of this program's reapers.
const REAPER: &str = "reap";

/// Variables that agents' programs set for the commands that they run. Variables that people set to configure those
/// programs are not among them.
const CLIENT_VARIABLES: [&str; 10] = [
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_PID",
    "CODEX_SANDBOX",
    "CODEX_SESSION_ID",
    "CODEX_THREAD_ID",
    "CURSOR_AGENT",
    "GEMINI_CLI",
    "OPENCODE",
];

/// Arguments that keep Codex from sharing a daemon between sessions. The daemon has the environment of the session that
/// started it, so that another session would act as that session's agent. Versions without a daemon ignore the setting.
pub const NO_SHARED_DAEMON: [&str; 2] = ["-c", "features.daemon_auto_start=false"];

/// The verb that launched an agent's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchKind {
    /// `switchboard run`: in a terminal, beside the person.
    Run,
    /// A worker, whose messages are its prompts.
    Worker,
    /// A watcher of a channel.
    Watcher,
    /// The command that wakes an agent of a swarm.
    Wake,
}

/// The launch of an agent's program by a process of ours, as the program's environment records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// What kind of launcher it was.
    pub kind: LaunchKind,
    /// The agent's name.
    pub agent: String,
    launcher: Owner,
}

/// A text that is not `kind host/pid/started name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a launch: expected `kind host/pid/started name`")]
pub struct ParseLaunchError {
    text: String,
}

/// What shows that a process belongs to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// A variable in its environment.
    Variable(String),
    /// An ancestor that is a process of ours, such as `switchboard run` or `switchboard serve`.
    Descendant(ProcessInfo),
    /// An ancestor with a variable of ours in its environment.
    Marked(ProcessInfo, String),
    /// An ancestor that holds an MCP session: it started `switchboard mcp`, or is connected to `switchboard serve`.
    Session(ProcessInfo),
}

/// Where a process comes from.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// The process and its ancestors, nearest first.
    chain: Vec<ProcessInfo>,
    /// Their environments, read when they are first asked for.
    environments: Vec<OnceLock<Environment>>,
    /// Whether it is the one that runs this code, which knows its own environment best.
    is_this: bool,
}

impl LaunchKind {
    const ALL: [Self; 4] = [Self::Run, Self::Worker, Self::Watcher, Self::Wake];

    fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Worker => "worker",
            Self::Watcher => "watch",
            Self::Wake => "wake",
        }
    }
}

impl Launch {
    /// A launch by the process that runs this code.
    pub fn by_this_process(kind: LaunchKind, agent: impl Into<String>) -> Self {
        Self { kind, agent: agent.into(), launcher: Owner::this_process() }
    }

    /// The process that launched the program.
    pub fn launcher(&self) -> &Owner {
        &self.launcher
    }

    /// The variables that the program is given.
    pub fn variables(&self) -> [(&'static str, String); 2] {
        [(AGENT_NAME, self.agent.clone()), (LAUNCHER, self.to_string())]
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.word(), self.launcher, self.agent)
    }
}

impl FromStr for Launch {
    type Err = ParseLaunchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            // A name may hold spaces and comes last.
            let mut parts = text.splitn(3, ' ');
            let (kind, launcher, agent) = (parts.next()?, parts.next()?, parts.next()?);
            let kind = LaunchKind::ALL.into_iter().find(|known| known.word() == kind)?;
            Some(Self { kind, agent: agent.to_owned(), launcher: launcher.parse().ok()? })
        };
        parse().ok_or_else(|| ParseLaunchError { text: text.to_owned() })
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "{name} is set"),
            Self::Descendant(ours) => {
                let verb = verb(ours).unwrap_or_default();
                write!(f, "`{} {verb}` (process {}) started it", ours.program, ours.pid)
            }
            Self::Marked(process, name) => {
                write!(f, "`{}` (process {}) started it, where {name} is set", process.program, process.pid)
            }
            Self::Session(client) => {
                write!(f, "`{}` (process {}) started it and holds an MCP session", client.program, client.pid)
            }
        }
    }
}

impl Lineage {
    /// The lineage of the process that runs this code.
    pub fn of_this_process() -> Self {
        Self::of(platform::process_and_ancestors(std::process::id()), true)
    }

    /// The lineage of another process.
    pub fn of_process(pid: u32) -> Self {
        Self::of(platform::process_and_ancestors(pid), false)
    }

    fn of(chain: Vec<ProcessInfo>, is_this: bool) -> Self {
        Self { environments: vec![OnceLock::new(); chain.len()], chain, is_this }
    }

    /// What shows that the process belongs to an agent, if anything does.
    pub fn evidence(&self) -> Option<Evidence> {
        self.marked_by().or_else(|| self.descended_from()).or_else(|| {
            let ours = processes_of_ours();
            self.session(&ours).map(|(found, _)| found).or_else(|| self.http_session(&ours))
        })
    }

    /// The launch that the process descends from, where its launcher still runs: the nearest one.
    pub fn launch(&self) -> Option<Launch> {
        let launches = (0..self.chain.len()).filter_map(|place| {
            let launch = self.recorded_launch(place)?;
            let above = self.chain.iter().skip(place).position(|process| launch.is_by(process))?;
            Some((place + above, place, launch))
        });
        // Of the marks of one launcher, the one nearest to it is its own; those below may have been changed.
        let nearest = launches.min_by_key(|(launcher, place, _)| (*launcher, usize::MAX - place));
        // In another pid namespace the launcher cannot be seen, and the environment has to do.
        let unseen = || self.recorded_launch(0).filter(|launch| !launch.launcher.is_on_this_host());
        nearest.map(|(.., launch)| launch).or_else(unseen)
    }

    /// The launch that the environment records but that the process does not descend from: the environment is that of
    /// another session, as below a shared daemon, or the process has left its tree.
    pub fn foreign_launch(&self) -> Option<Launch> {
        let launch = self.recorded_launch(0)?;
        let is_known = launch.launcher.is_on_this_host() && !self.chain.is_empty();
        (is_known && !self.chain.iter().any(|process| launch.is_by(process))).then_some(launch)
    }

    /// The agent of the MCP session that an ancestor holds, where the session was started for one.
    pub fn session_agent(&self) -> Option<String> {
        let (_, server) = self.session(&processes_of_ours())?;
        platform::process_variable(server, AGENT_NAME).filter(|name| !name.is_empty())
    }

    fn marked_by(&self) -> Option<Evidence> {
        let ours = self.own_mark(0);
        let theirs = || CLIENT_VARIABLES.into_iter().find(|name| self.variable(0, name).is_some());
        ours.or_else(theirs).map(|name| Evidence::Variable(name.to_owned()))
    }

    /// The nearest ancestor of ours, or that we have marked. Marks of clients do not count there: who develops this
    /// program with an agent's help runs it from below that agent.
    fn descended_from(&self) -> Option<Evidence> {
        let names = program_names();
        let is_ours = |process: &ProcessInfo| names.contains(&process.program);
        let found = (1..self.chain.len()).find_map(|place| {
            let process = &self.chain[place];
            if is_ours(process) {
                return Some((place, Evidence::Descendant(process.clone())));
            }
            let name = self.own_mark(place)?;
            Some((place, Evidence::Marked(process.clone(), name.to_owned())))
        });
        let (place, evidence) = found?;
        // Above a reaper is the process that it works for, unless that has ended.
        let is_reaper = |process: &&ProcessInfo| is_ours(process) && verb(process).as_deref() == Some(REAPER);
        let reapers = self.chain[place..].iter().take_while(is_reaper).count();
        let host = self.chain.get(place + reapers).filter(|process| reapers > 0 && is_ours(process));
        Some(host.map_or(evidence, |host| Evidence::Descendant(host.clone())))
    }

    /// The variable of ours by which the process at this place is an agent's.
    fn own_mark(&self, place: usize) -> Option<&'static str> {
        let is_agents = |name: String| !name.eq_ignore_ascii_case(HUMAN);
        let named = || self.variable(place, AGENT_NAME).is_some_and(is_agents).then_some(AGENT_NAME);
        self.variable(place, LAUNCHER).map(|_| LAUNCHER).or_else(named)
    }

    /// The ancestor that holds an MCP session on pipes, and the process of ours that serves it.
    fn session(&self, ours: &[ProcessInfo]) -> Option<(Evidence, u32)> {
        let mut servers = ours.iter().filter(|process| verb(process).as_deref() == Some("mcp"));
        servers.find_map(|server| {
            let client = client_of(server)?;
            let held = self.chain.iter().skip(1).find(|ancestor| ancestor.pid == client)?;
            Some((Evidence::Session(held.clone()), server.pid))
        })
    }

    /// The ancestor that is connected to a server of ours over TCP.
    fn http_session(&self, ours: &[ProcessInfo]) -> Option<Evidence> {
        let ancestors: Vec<u32> = self.chain.iter().skip(1).map(|process| process.pid).collect();
        let mut servers = ours.iter().filter(|process| verb(process).as_deref() == Some("serve"));
        let client = servers.find_map(|server| platform::tcp_client_of(server.pid, &ancestors))?;
        self.chain.iter().find(|process| process.pid == client).cloned().map(Evidence::Session)
    }

    fn recorded_launch(&self, place: usize) -> Option<Launch> {
        self.variable(place, LAUNCHER)?.parse().ok()
    }

    /// A variable of the process at this place of the chain; an empty one counts as not set.
    fn variable(&self, place: usize, name: &str) -> Option<String> {
        let value = match self.chain.get(place) {
            _ if self.is_this && place == 0 => {
                std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
            }
            Some(process) => {
                let environment = self.environments.get(place)?;
                environment.get_or_init(|| platform::process_environment(process.pid)).variable(name)
            }
            None => None,
        };
        value.filter(|value| !value.is_empty())
    }
}

impl Launch {
    /// Whether this process is the launcher.
    fn is_by(&self, process: &ProcessInfo) -> bool {
        self.launcher.pid() == process.pid && self.launcher.is_on_this_host() && !self.launcher.is_gone()
    }
}

/// The client of a server on pipes: its parent, or the parent of a wrapper that hands its own input on.
fn client_of(server: &ProcessInfo) -> Option<u32> {
    let above = platform::process_and_ancestors(server.parent);
    above.iter().find(|process| !platform::shares_stdin(process.pid, server.pid)).map(|process| process.pid)
}

/// What a process of ours was asked to do.
fn verb(process: &ProcessInfo) -> Option<String> {
    let mut words = process.arguments.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match &*word {
            "--from" | "--workspace" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => return Some(word.into_owned()),
        }
    }
    None
}

/// The running processes of this program.
fn processes_of_ours() -> Vec<ProcessInfo> {
    let names = program_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    platform::processes_of_program(&names)
}

/// The file names that our own processes have: the usual one, and the one of this process.
fn program_names() -> Vec<String> {
    let own = std::env::current_exe().ok();
    let own = own.and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    let own = own.filter(|name| name != PROGRAM);
    own.into_iter().chain([PROGRAM.to_owned()]).collect()
}

#[cfg(test)]
#[path = "lineage_tests.rs"]
mod tests;
