//! Child processes: the only module that starts other programs.
//!
//! A program gets a small, known environment and its own process group, and the whole group is killed with its
//! [`Child`]. A program that runs for a door is started below a reaper. Then all of its descendants are killed with it,
//! including those that left the group, and even if this process is killed.

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

pub use self::program::{ProgramError, check_program};
use self::reaped::Reaped;
use crate::lineage::{Launch, LaunchKind};
use crate::reaper::{ReaperClient, Request};

/// Environment variables that every program inherits. A trailing `*` matches any suffix.
///
/// They describe the user, the locale, and the proxy and certificates for network access. Keys and tokens are not among
/// them: a program gets those that it needs by name.
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

/// Search path for programs if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Variables of [`ENV_ALLOWED`] with a proxy URL, which may contain a password.
pub const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Poll interval for a process group whose leader has exited.
///
/// A process is notified only of the exit of its own children, so other processes have to be polled.
const GROUP_POLL: Duration = Duration::from_millis(10);

/// Builder for starting a program.
///
/// The program's three standard streams are null unless set otherwise, because our own stdout may carry a protocol that
/// no other program may write to.
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

/// Error of starting a program.
#[derive(Debug, thiserror::Error)]
#[error("cannot start `{}`{}", .program.display(), in_directory(.cwd.as_ref()))]
pub struct SpawnError {
    program: OsString,
    cwd: Option<PathBuf>,
    source: io::Error,
}

impl SpawnError {
    /// Returns the operating system's error.
    pub fn into_io_error(self) -> io::Error {
        self.source
    }
}

impl Spawn {
    /// Creates a builder for a program, which is searched for in `PATH` unless it is given as a path.
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

    /// Sets `argv[0]` of the program.
    pub(crate) fn name(mut self, name: impl Into<OsString>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds arguments of the program.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the working directory of the program. The default is that of this process.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Lets the program inherit more environment variables, in addition to [`ENV_ALLOWED`].
    ///
    /// A variable is given by name or as `PREFIX_*`.
    pub fn env_allow(mut self, names: &[&str]) -> Self {
        self.env_allowed.extend(names.iter().map(|&name| name.to_owned()));
        self
    }

    /// Sets an environment variable of the program, regardless of its value in this process.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Marks the program as an agent's program.
    ///
    /// Its environment then names the agent, and this process as its launcher.
    pub fn for_agent(self, kind: LaunchKind, agent: &str) -> Self {
        let variables = Launch::by_this_process(kind, agent).variables();
        variables.into_iter().fold(self, |spawn, (name, value)| spawn.env(name, value))
    }

    /// Sets the stdin of the program.
    pub fn stdin(mut self, stdin: Stdio) -> Self {
        self.stdin = stdin;
        self
    }

    /// Sets the stdout of the program.
    pub fn stdout(mut self, stdout: Stdio) -> Self {
        self.stdout = stdout;
        self
    }

    /// Sets the stderr of the program.
    pub fn stderr(mut self, stderr: Stdio) -> Self {
        self.stderr = stderr;
        self
    }

    /// Starts the program as the leader of a new process group. Requires a Tokio runtime.
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

    /// Starts the program with all three streams piped.
    ///
    /// With a `reaper` client, the program runs below a reaper.
    pub async fn start(self, reaper: Option<&ReaperClient>) -> Result<Child, SpawnError> {
        let Some(reaper) = reaper else {
            return self.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        };
        let env = self.environment();
        let Self { program, args, cwd, .. } = self;
        let started = async {
            let folder = match &cwd {
                Some(dir) => dir.clone(),
                None => std::env::current_dir()?,
            };
            let request = Request { program: program.clone(), cwd: std::path::absolute(folder)?, args, env };
            let (started, pipes) = reaper.start(&request).await?;
            Reaped::new(started, Some(pipes))
        };
        let started = started.await.map(|reaped| Child(Process::Reaped(reaped)));
        started.map_err(|source| SpawnError { program, cwd, source })
    }

    /// Starts the program in the person's terminal, as the leader of a session, below a reaper.
    ///
    /// The program inherits the complete environment.
    pub async fn start_in_terminal(
        self,
        terminal: BorrowedFd<'_>,
        reaper: &ReaperClient,
    ) -> Result<Child, SpawnError> {
        let env = std::env::vars_os().chain(self.env.iter().cloned()).collect();
        let Self { program, args, .. } = self;
        let started = async {
            let request = Request { program: program.clone(), cwd: std::env::current_dir()?, args, env };
            Reaped::new(reaper.start_in_terminal(&request, terminal).await?, None)
        };
        let started = started.await.map(|reaped| Child(Process::Reaped(reaped)));
        started.map_err(|source| SpawnError { program, cwd: None, source })
    }

    /// Returns the program's complete environment. The last of several values of a variable counts.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let is_passed = |name: &OsStr| is_allowed(name, ENV_ALLOWED) || is_allowed(name, &self.env_allowed);
        let inherited = std::env::vars_os().filter(|(name, _)| is_passed(name));
        inherited.chain(self.env.iter().cloned()).collect()
    }
}

/// A running program with its descendants.
///
/// Below a reaper, these are all descendants, otherwise those in the program's process group. Dropping this handle
/// kills them at once; [`stop`](Self::stop) is the graceful shutdown.
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
    /// True once the group was killed or found empty.
    ///
    /// From then on the system may reuse the group's number, so no signal may be sent to it any more.
    is_over: bool,
}

impl Child {
    /// Returns the pid of the program, which is also the id of its process group.
    pub fn pid(&self) -> u32 {
        let pid = match &self.0 {
            Process::Leader(leader) => leader.group,
            Process::Reaped(reaped) => reaped.pid,
        };
        pid.as_raw_pid().unsigned_abs()
    }

    /// Returns the writing end of the program's stdin, once, if stdin is piped.
    ///
    /// The caller has to close it, because [`stop`](Self::stop) can then no longer do so.
    pub fn stdin_writer(&mut self) -> Option<ChildStdin> {
        match &mut self.0 {
            Process::Leader(leader) => leader.inner.stdin().take(),
            Process::Reaped(reaped) => reaped.stdin.take(),
        }
    }

    /// Returns the reading end of the program's stdout, once, if stdout is piped.
    pub fn stdout_reader(&mut self) -> Option<ChildStdout> {
        match &mut self.0 {
            Process::Leader(leader) => leader.inner.stdout().take(),
            Process::Reaped(reaped) => reaped.stdout.take(),
        }
    }

    /// Returns the reading end of the program's stderr, once, if stderr is piped.
    pub fn stderr_reader(&mut self) -> Option<ChildStderr> {
        match &mut self.0 {
            Process::Leader(leader) => leader.inner.stderr().take(),
            Process::Reaped(reaped) => reaped.stderr.take(),
        }
    }

    /// Waits until the program exits, then kills its remaining descendants.
    ///
    /// The call closes stdin first, unless [`stdin_writer`](Self::stdin_writer) returned it. It is cancel-safe.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Process::Leader(leader) => leader.wait().await,
            Process::Reaped(reaped) => reaped.wait().await,
        }
    }

    /// Waits until the program exits, and lets its descendants continue.
    ///
    /// Without a reaper, they continue only if the program succeeded. This is for programs that start background
    /// processes on purpose, such as clipboard owners, and for programs in the person's terminal.
    pub async fn wait_and_detach(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Process::Leader(leader) => leader.wait_and_detach().await,
            Process::Reaped(reaped) => reaped.wait_and_detach().await,
        }
    }

    /// Lets the program continue after this handle is dropped.
    pub(crate) fn detach(mut self) {
        if let Process::Leader(leader) = &mut self.0 {
            leader.is_over = true;
        }
    }

    /// Shuts down the program and its descendants gracefully, and returns when they have exited.
    ///
    /// The call first closes stdin, which stops a server on pipes. It sends SIGTERM after `grace`, and SIGKILL after
    /// another `grace`. Descendants that outlive the program get the same time.
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

    async fn wait_and_detach(&mut self) -> io::Result<ExitStatus> {
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

    /// Waits until the program and all processes of its group have exited by themselves.
    async fn wait_for_group(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await?;
        while !self.is_over {
            // An error means that no process remains, or that we may signal none of the remaining ones.
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

    /// Signals every process in the group. A failure, for example for an empty group, is only logged.
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

/// Returns true if a variable's name matches a list whose entries may end in `*`.
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
