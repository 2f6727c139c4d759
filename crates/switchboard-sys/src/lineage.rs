//! Lineage of a process: whether an agent's program started it, and which agent that is.
//!
//! There are two kinds of evidence. One is the environment, which processes inherit even if they leave the process
//! tree. The other is the process tree itself, which a program cannot change by clearing the environment. A process
//! that both leaves the tree and clears its environment is not recognised.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use switchboard_core::HUMAN;

use crate::platform::{self, Environment, ProcessInfo};
use crate::process_identity::ProcessIdentity;

/// Environment variable that names the agent.
pub const AGENT_NAME: &str = "SWITCHBOARD_AGENT_NAME";

/// Environment variable by which a launcher marks a program that it starts for an agent.
pub const LAUNCHER: &str = "SWITCHBOARD_LAUNCHER";

/// File name of this program. Processes with this name are launchers and servers of agents.
pub(crate) const PROGRAM: &str = "switchboard";

/// Subcommand of this program's reapers.
const REAPER: &str = "sentinel";

/// Environment variables that agents' programs set for the commands that they run.
///
/// Variables that people set to configure these programs are not included.
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

/// Arguments that prevent Codex from sharing a daemon between sessions.
///
/// A shared daemon has the environment of the session that started it, so that other sessions would act as the same
/// agent. Codex versions without a daemon ignore the setting.
pub const NO_SHARED_DAEMON: [&str; 2] = ["-c", "features.daemon_auto_start=false"];

/// Kind of the launcher of an agent's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchKind {
    /// `switchboard run`, which starts the program in the person's terminal.
    Run,
    /// The launcher of a worker, which gets its messages as prompts.
    Worker,
    /// The launcher of a program that watches a channel.
    Watcher,
    /// The launcher of the command that wakes an agent of a swarm.
    Wake,
}

/// Launch of an agent's program by a Switchboard process, as recorded in the program's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Kind of the launcher.
    pub kind: LaunchKind,
    /// The agent's name.
    pub agent: String,
    launcher: ProcessIdentity,
}

/// Error of parsing a launch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a launch: expected `kind host/pid/started name`")]
pub struct ParseLaunchError {
    text: String,
}

/// Evidence that a process belongs to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// A variable in the environment of the process itself.
    Variable(String),
    /// An ancestor that is a Switchboard process, such as `switchboard run` or `switchboard serve`.
    Descendant(ProcessInfo),
    /// An ancestor with a Switchboard variable in its environment.
    Marked(ProcessInfo, String),
    /// An ancestor with an MCP session.
    ///
    /// The ancestor started `switchboard mcp`, or is connected to `switchboard serve`.
    Session(ProcessInfo),
}

/// Lineage of a process: its ancestors and their environments.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// The process and its ancestors, nearest first.
    chain: Vec<ProcessInfo>,
    /// Environments of the processes in `chain`, each read on first use.
    environments: Vec<OnceLock<Environment>>,
    /// True if this is the lineage of the current process, which reads its own environment directly.
    is_this: bool,
}

impl LaunchKind {
    const ALL: [Self; 4] = [Self::Run, Self::Worker, Self::Watcher, Self::Wake];

    fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Worker => "worker",
            Self::Watcher => "watch",
            Self::Wake => "wake",
        }
    }
}

impl Launch {
    /// Returns a launch by the current process.
    pub fn by_this_process(kind: LaunchKind, agent: impl Into<String>) -> Self {
        Self { kind, agent: agent.into(), launcher: ProcessIdentity::this_process() }
    }

    /// Returns the process that launched the program.
    pub fn launcher(&self) -> &ProcessIdentity {
        &self.launcher
    }

    /// Returns the environment variables that record the launch in the program's environment.
    pub fn variables(&self) -> [(&'static str, String); 2] {
        [(AGENT_NAME, self.agent.clone()), (LAUNCHER, self.to_string())]
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.as_str(), self.launcher, self.agent)
    }
}

impl FromStr for Launch {
    type Err = ParseLaunchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            // The name comes last, because it may contain spaces.
            let mut parts = text.splitn(3, ' ');
            let (kind, launcher, agent) = (parts.next()?, parts.next()?, parts.next()?);
            let kind = LaunchKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
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
    /// Returns the lineage of the current process.
    pub fn of_this_process() -> Self {
        Self::of(platform::process_and_ancestors(std::process::id()), true)
    }

    /// Returns the lineage of another process.
    pub fn of_process(pid: u32) -> Self {
        Self::of(platform::process_and_ancestors(pid), false)
    }

    fn of(chain: Vec<ProcessInfo>, is_this: bool) -> Self {
        Self { environments: vec![OnceLock::new(); chain.len()], chain, is_this }
    }

    /// Returns the evidence that the process belongs to an agent, if any.
    pub fn evidence(&self) -> Option<Evidence> {
        self.find_variable().or_else(|| self.find_ancestor_evidence()).or_else(|| {
            let ours = processes_of_ours();
            self.session(&ours).map(|(found, _)| found).or_else(|| self.http_session(&ours))
        })
    }

    /// Returns the nearest launch that the process descends from and whose launcher still runs.
    pub fn launch(&self) -> Option<Launch> {
        let launches = (0..self.chain.len()).filter_map(|index| {
            let launch = self.recorded_launch(index)?;
            let above = self.chain.iter().skip(index).position(|process| launch.is_by(process))?;
            Some((index + above, index, launch))
        });
        // If several processes record the same launcher, the record nearest to the launcher is authentic; descendants
        // may have changed the others.
        let nearest = launches.min_by_key(|(launcher, index, _)| (*launcher, usize::MAX - index));
        // The launcher is invisible from another pid namespace, where only the environment counts.
        let unseen = || self.recorded_launch(0).filter(|launch| !launch.launcher.is_on_this_host());
        nearest.map(|(.., launch)| launch).or_else(unseen)
    }

    /// Returns a launch that the environment records but from which the process does not descend.
    ///
    /// Either the environment is from another session, for example below a shared daemon, or the process has left its
    /// tree.
    pub fn foreign_launch(&self) -> Option<Launch> {
        let launch = self.recorded_launch(0)?;
        let is_known = launch.launcher.is_on_this_host() && !self.chain.is_empty();
        (is_known && !self.chain.iter().any(|process| launch.is_by(process))).then_some(launch)
    }

    /// Returns the agent of an ancestor's MCP session, if the session was started for an agent.
    pub fn session_agent(&self) -> Option<String> {
        let (_, server) = self.session(&processes_of_ours())?;
        platform::process_variable(server, AGENT_NAME).filter(|name| !name.is_empty())
    }

    fn find_variable(&self) -> Option<Evidence> {
        let ours = self.own_variable(0);
        let theirs = || CLIENT_VARIABLES.into_iter().find(|name| self.variable(0, name).is_some());
        ours.or_else(theirs).map(|name| Evidence::Variable(name.to_owned()))
    }

    /// Finds the nearest ancestor that is a Switchboard process or has Switchboard variables.
    ///
    /// Variables of clients do not count here, because people who develop this program with an agent run it as a
    /// descendant of that agent.
    fn find_ancestor_evidence(&self) -> Option<Evidence> {
        let names = program_names();
        let is_ours = |process: &ProcessInfo| names.contains(&process.program);
        let found = (1..self.chain.len()).find_map(|index| {
            let process = &self.chain[index];
            if is_ours(process) {
                return Some((index, Evidence::Descendant(process.clone())));
            }
            let name = self.own_variable(index)?;
            Some((index, Evidence::Marked(process.clone(), name.to_owned())))
        });
        let (index, evidence) = found?;
        // The parent of a reaper is its host, unless the host has exited.
        let is_reaper = |process: &&ProcessInfo| is_ours(process) && verb(process).as_deref() == Some(REAPER);
        let reapers = self.chain[index..].iter().take_while(is_reaper).count();
        let host = self.chain.get(index + reapers).filter(|process| reapers > 0 && is_ours(process));
        Some(host.map_or(evidence, |host| Evidence::Descendant(host.clone())))
    }

    /// Returns the Switchboard variable that marks the process at this index as an agent's, if any.
    fn own_variable(&self, index: usize) -> Option<&'static str> {
        let is_agents = |name: String| !name.eq_ignore_ascii_case(HUMAN);
        let named = || self.variable(index, AGENT_NAME).is_some_and(is_agents).then_some(AGENT_NAME);
        self.variable(index, LAUNCHER).map(|_| LAUNCHER).or_else(named)
    }

    /// Finds the ancestor with an MCP session on pipes, and the Switchboard process that serves the session.
    fn session(&self, ours: &[ProcessInfo]) -> Option<(Evidence, u32)> {
        let mut servers = ours.iter().filter(|process| verb(process).as_deref() == Some("mcp"));
        servers.find_map(|server| {
            let client = client_of(server)?;
            let held = self.chain.iter().skip(1).find(|ancestor| ancestor.pid == client)?;
            Some((Evidence::Session(held.clone()), server.pid))
        })
    }

    /// Finds the ancestor that is connected to a Switchboard server over TCP.
    fn http_session(&self, ours: &[ProcessInfo]) -> Option<Evidence> {
        let ancestors: Vec<u32> = self.chain.iter().skip(1).map(|process| process.pid).collect();
        let mut servers = ours.iter().filter(|process| verb(process).as_deref() == Some("serve"));
        let client = servers.find_map(|server| platform::tcp_client_of(server.pid, &ancestors))?;
        self.chain.iter().find(|process| process.pid == client).cloned().map(Evidence::Session)
    }

    fn recorded_launch(&self, index: usize) -> Option<Launch> {
        self.variable(index, LAUNCHER)?.parse().ok()
    }

    /// Returns a variable of the process at this index of the chain. An empty variable counts as unset.
    fn variable(&self, index: usize, name: &str) -> Option<String> {
        let value = match self.chain.get(index) {
            _ if self.is_this && index == 0 => {
                std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
            }
            Some(process) => {
                let environment = self.environments.get(index)?;
                environment.get_or_init(|| platform::process_environment(process.pid)).variable(name)
            }
            None => None,
        };
        value.filter(|value| !value.is_empty())
    }
}

impl Launch {
    /// Returns true if `process` is the launcher.
    fn is_by(&self, process: &ProcessInfo) -> bool {
        self.launcher.pid() == process.pid && self.launcher.is_on_this_host() && !self.launcher.has_exited()
    }
}

/// Returns the client of a server on pipes.
///
/// The client is the server's parent, or the parent of a wrapper that shares the server's stdin.
fn client_of(server: &ProcessInfo) -> Option<u32> {
    let above = platform::process_and_ancestors(server.parent);
    above.iter().find(|process| !platform::shares_stdin(process.pid, server.pid)).map(|process| process.pid)
}

/// Returns the subcommand of a Switchboard process.
fn verb(process: &ProcessInfo) -> Option<String> {
    let mut words = process.arguments.iter().map(|as_str| as_str.to_string_lossy());
    while let Some(as_str) = words.next() {
        match &*as_str {
            "--from" | "--workspace" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => return Some(as_str.into_owned()),
        }
    }
    None
}

/// Returns the running processes of this program.
fn processes_of_ours() -> Vec<ProcessInfo> {
    let names = program_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    platform::processes_of_program(&names)
}

/// Returns the possible file names of this program: the usual one, and that of the current process.
fn program_names() -> Vec<String> {
    let own = std::env::current_exe().ok();
    let own = own.and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    let own = own.filter(|name| name != PROGRAM);
    own.into_iter().chain([PROGRAM.to_owned()]).collect()
}

#[cfg(test)]
#[path = "lineage_tests.rs"]
mod tests;
