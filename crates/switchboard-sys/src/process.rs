//! The one place where other programs are started.
//!
//! A program gets a small, known environment and a process group of its own, and the whole group
//! ends with its [`Child`]. One that runs for a door is started below a reaper: then all that descends from it ends
//! with it, also what has left the group, and also when this process is killed.

mod program;
mod reaped;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessGroup};
use rustix::process::{Pid, Signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

pub use self::program::{ProgramProblem, check_program};
use self::reaped::Reaped;
use crate::guard::Guard;
use crate::lineage::{Launch, LaunchKind};
use crate::reaper::wire::Request;

/// The variables that every program is given, when they are set. A trailing `*` stands for any rest.
///
/// They say where and for whom a program runs, and by which proxy and certificates it reaches others.
/// Keys and tokens are not among them: a program gets the ones it needs by name.
pub const ENV_ALLOWED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_*",
    "TERM",
    "TMPDIR",
    "TZ",
    "XDG_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
];

/// Where the system looks for programs if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Those of [`ENV_ALLOWED`] that hold an address, which may have a password in it.
pub const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// How often a group is looked at that has lost its leader.
///
/// Nobody is told when a process ends that is not a child of its own, so this is found by looking.
const GROUP_POLL: Duration = Duration::from_millis(10);

/// A program about to be started.
///
/// Its three streams lead nowhere unless set otherwise: our own stdout may belong to a protocol and
/// must never be written to by someone else.
#[derive(Debug)]
#[must_use = "nothing is started before `spawn`"]
pub struct Spawn {
    program: OsString,
    name: Option<OsString>,
    args: Vec<OsString>,
    cwd: Option<PathBuf>,
    env_allowed: Vec<String>,
    env: Vec<(OsString, OsString)>,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
}

/// A program that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start `{}`{}", .program.display(), in_directory(.cwd.as_ref()))]
pub struct SpawnError {
    program: OsString,
    cwd: Option<PathBuf>,
    source: io::Error,
}

impl SpawnError {
    /// What the system said.
    pub fn into_cause(self) -> io::Error {
        self.source
    }
}

impl Spawn {
    /// Prepares to start a program, which is looked for in `PATH` unless it is a path.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            name: None,
            args: Vec::new(),
            cwd: None,
            env_allowed: Vec::new(),
            env: Vec::new(),
            stdin: Stdio::null(),
            stdout: Stdio::null(),
            stderr: Stdio::null(),
        }
    }

    /// Sets the name that the program sees as its own, instead of the one by which it is found.
    pub(crate) fn name(mut self, name: impl Into<OsString>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the directory that the program starts in; otherwise it is ours.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Passes more of our own variables on, by name or as `PREFIX_*`, beside [`ENV_ALLOWED`].
    pub fn env_allow(mut self, names: &[&str]) -> Self {
        self.env_allowed.extend(names.iter().map(|&name| name.to_owned()));
        self
    }

    /// Sets a variable of the program, whatever ours is.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts the program for an agent: its environment names the agent and this process as its launcher.
    pub fn for_agent(self, kind: LaunchKind, agent: &str) -> Self {
        let variables = Launch::by_this_process(kind, agent).variables();
        variables.into_iter().fold(self, |spawn, (name, value)| spawn.env(name, value))
    }

    /// Sets where the program reads from.
    pub fn stdin(mut self, stdin: Stdio) -> Self {
        self.stdin = stdin;
        self
    }

    /// Sets where the program writes to.
    pub fn stdout(mut self, stdout: Stdio) -> Self {
        self.stdout = stdout;
        self
    }

    /// Sets where the program complains to.
    pub fn stderr(mut self, stderr: Stdio) -> Self {
        self.stderr = stderr;
        self
    }

    /// Starts the program as the leader of a new process group. Needs a Tokio runtime.
    pub fn spawn(self) -> Result<Child, SpawnError> {
        let env = self.environment();
        let Self { program, name, args, cwd, stdin, stdout, stderr, .. } = self;
        let mut command = CommandWrap::with_new(&program, |command| {
            command.args(args).env_clear().envs(env).stdin(stdin).stdout(stdout).stderr(stderr);
            if let Some(name) = name {
                command.arg0(name);
            }
            if let Some(dir) = &cwd {
                command.current_dir(dir);
            }
        });
        let started = command.wrap(ProcessGroup::leader()).spawn().and_then(Leader::new);
        let started = started.map(|leader| Child(Process::Leader(leader)));
        started.map_err(|source| SpawnError { program, cwd, source })
    }

    /// Starts the program with all three streams piped; below a reaper, where there are reapers.
    pub async fn start(self, guard: Option<&Guard>) -> Result<Child, SpawnError> {
        let Some(guard) = guard else {
            return self.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        };
        let env = self.environment();
        let Self { program, args, cwd, .. } = self;
        let started = async {
            let here = match &cwd {
                Some(dir) => dir.clone(),
                None => std::env::current_dir()?,
            };
            let request = Request { program: program.clone(), cwd: std::path::absolute(here)?, args, env };
            let (started, pipes) = guard.start(&request).await?;
            Reaped::new(started, Some(pipes))
        };
        let started = started.await.map(|reaped| Child(Process::Reaped(reaped)));
        started.map_err(|source| SpawnError { program, cwd, source })
    }

    /// Starts the person's own program in this terminal, as the leader of a session, below a reaper. It gets the
    /// person's own environment.
    pub async fn start_in_terminal(
        self,
        terminal: BorrowedFd<'_>,
        guard: &Guard,
    ) -> Result<Child, SpawnError> {
        let env = std::env::vars_os().chain(self.env.iter().cloned()).collect();
        let Self { program, args, .. } = self;
        let started = async {
            let request = Request { program: program.clone(), cwd: std::env::current_dir()?, args, env };
            Reaped::new(guard.start_in_terminal(&request, terminal).await?, None)
        };
        let started = started.await.map(|reaped| Child(Process::Reaped(reaped)));
        started.map_err(|source| SpawnError { program, cwd: None, source })
    }

    /// The program's whole environment. Of two values of a variable the last counts.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let is_passed = |name: &OsStr| is_allowed(name, ENV_ALLOWED) || is_allowed(name, &self.env_allowed);
        let inherited = std::env::vars_os().filter(|(name, _)| is_passed(name));
        inherited.chain(self.env.iter().cloned()).collect()
    }
}

/// A started program with everything that it started: below a reaper all that descends from it, otherwise what is in
/// its process group.
///
/// Dropping it kills all of that at once. [`stop`](Self::stop) is the polite way.
#[derive(Debug)]
pub struct Child(Process);

#[derive(Debug)]
enum Process {
    Leader(Leader),
    Reaped(Reaped),
}

/// A program that is a child of this process and leads a process group.
#[derive(Debug)]
struct Leader {
    inner: Box<dyn ChildWrapper>,
    group: Pid,
    /// Set once the group has been killed or found empty: from then on the system may give its
    /// number to strangers, so that no signal may be sent to it any more.
    is_over: bool,
}

impl Child {
    /// The id of the program's process, which is also the id of its group.
    pub fn pid(&self) -> u32 {
        let pid = match &self.0 {
            Process::Leader(leader) => leader.group,
            Process::Reaped(reaped) => reaped.pid,
        };
        pid.as_raw_pid().unsigned_abs()
    }

    /// Hands out the writing end of the program's stdin, once, when it is piped.
    ///
    /// Whoever takes it also closes it: [`stop`](Self::stop) can then only close its own part.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        match &mut self.0 {
            Process::Leader(leader) => leader.inner.stdin().take(),
            Process::Reaped(reaped) => reaped.stdin.take(),
        }
    }

    /// Hands out the reading end of the program's stdout, once, when it is piped.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        match &mut self.0 {
            Process::Leader(leader) => leader.inner.stdout().take(),
            Process::Reaped(reaped) => reaped.stdout.take(),
        }
    }

    /// Hands out the reading end of the program's stderr, once, when it is piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        match &mut self.0 {
            Process::Leader(leader) => leader.inner.stderr().take(),
            Process::Reaped(reaped) => reaped.stderr.take(),
        }
    }

    /// Waits until the program ends, then kills what it left behind.
    ///
    /// Closes stdin first, unless it was taken. Can be cancelled and called again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Process::Leader(leader) => leader.wait().await,
            Process::Reaped(reaped) => reaped.wait().await,
        }
    }

    /// Waits until the program ends, and lets go on what it left behind; without a reaper only where it ended well.
    ///
    /// For programs whose work it is to leave something behind, such as those that hold a clipboard, and for a person's
    /// own.
    pub async fn wait_and_leave(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Process::Leader(leader) => leader.wait_and_leave().await,
            Process::Reaped(reaped) => reaped.wait_and_leave().await,
        }
    }

    /// Lets the program go on by itself.
    pub(crate) fn leave(mut self) {
        if let Process::Leader(leader) = &mut self.0 {
            leader.is_over = true;
        }
    }

    /// Asks the program and all that it started to end, more firmly each time, and returns when they have.
    ///
    /// First stdin is closed, which is how a server on pipes is told to stop; after `grace` follows
    /// SIGTERM, and after `grace` once more SIGKILL. The program itself may end before those that it
    /// started: they get the same time.
    pub async fn stop(self, grace: Duration) -> io::Result<ExitStatus> {
        match self.0 {
            Process::Leader(leader) => leader.stop(grace).await,
            Process::Reaped(reaped) => reaped.stop(grace).await,
        }
    }
}

impl Leader {
    fn new(inner: Box<dyn ChildWrapper>) -> io::Result<Self> {
        let group = inner.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the program has no process id"))?;
        Ok(Self { inner, group, is_over: false })
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await?;
        self.kill_group();
        Ok(status)
    }

    async fn wait_and_leave(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await?;
        if status.success() {
            self.is_over = true;
        } else {
            self.kill_group();
        }
        Ok(status)
    }

    async fn stop(mut self, grace: Duration) -> io::Result<ExitStatus> {
        drop(self.inner.stdin().take());
        if let Ok(status) = timeout(grace, self.wait_for_group()).await {
            return status;
        }
        self.signal_group(Signal::TERM);
        if let Ok(status) = timeout(grace, self.wait_for_group()).await {
            return status;
        }
        self.signal_group(Signal::KILL);
        self.wait().await
    }

    /// Waits until the program and all that it started in its group have ended of themselves.
    async fn wait_for_group(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await?;
        while !self.is_over {
            // An error says that nobody is left, or nobody whom we may signal.
            self.is_over = rustix::process::test_kill_process_group(self.group).is_err();
            if !self.is_over {
                sleep(GROUP_POLL).await;
            }
        }
        Ok(status)
    }

    fn kill_group(&mut self) {
        self.signal_group(Signal::KILL);
        self.is_over = true;
    }

    /// Signals every process in the group. That none is left is as good as success.
    fn signal_group(&self, signal: Signal) {
        if !self.is_over
            && let Err(error) = rustix::process::kill_process_group(self.group, signal)
        {
            tracing::debug!(group = self.group.as_raw_pid(), ?signal, %error, "the process group took no signal");
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// Whether a variable's name is in a list whose entries may end in `*`.
fn is_allowed(name: &OsStr, list: &[impl AsRef<str>]) -> bool {
    let Some(name) = name.to_str() else { return false };
    list.iter().any(|entry| match entry.as_ref().strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == entry.as_ref(),
    })
}

fn in_directory(cwd: Option<&PathBuf>) -> String {
    cwd.map(|dir| format!(" in {}", dir.display())).unwrap_or_default()
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
