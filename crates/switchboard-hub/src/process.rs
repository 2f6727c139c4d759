//! The one place where other programs are started.
//!
//! A program gets a small, known environment and a process group of its own, and the whole group
//! ends with its [`Child`]: no program that was started for a door outlives it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessGroup};
use rustix::process::{Pid, Signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use crate::lineage::{Launch, LaunchKind};

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

impl Spawn {
    /// Prepares to start a program, which is looked for in `PATH` unless it is a path.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            env_allowed: Vec::new(),
            env: Vec::new(),
            stdin: Stdio::null(),
            stdout: Stdio::null(),
            stderr: Stdio::null(),
        }
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
        let Self { program, args, cwd, env_allowed, env, stdin, stdout, stderr } = self;
        let inherited = std::env::vars_os()
            .filter(|(name, _)| is_allowed(name, ENV_ALLOWED) || is_allowed(name, &env_allowed));
        let mut command = CommandWrap::with_new(&program, |command| {
            command
                .args(args)
                .env_clear()
                .envs(inherited)
                .envs(env)
                .stdin(stdin)
                .stdout(stdout)
                .stderr(stderr);
            if let Some(dir) = &cwd {
                command.current_dir(dir);
            }
        });
        let started = command.wrap(ProcessGroup::leader()).spawn().and_then(Child::new);
        started.map_err(|source| SpawnError { program, cwd, source })
    }
}

/// A started program with everything that it started in its process group.
///
/// Dropping it kills the whole group at once. [`stop`](Self::stop) is the polite way.
#[derive(Debug)]
pub struct Child {
    inner: Box<dyn ChildWrapper>,
    group: Pid,
    /// Set once the group has been killed or found empty: from then on the system may give its
    /// number to strangers, so that no signal may be sent to it any more.
    is_over: bool,
}

impl Child {
    fn new(inner: Box<dyn ChildWrapper>) -> io::Result<Self> {
        let group = inner.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the program has no process id"))?;
        Ok(Self { inner, group, is_over: false })
    }

    /// The id of the program's process, which is also the id of its group.
    pub fn pid(&self) -> u32 {
        self.group.as_raw_pid().unsigned_abs()
    }

    /// Hands out the writing end of the program's stdin, once, when it is piped.
    ///
    /// Whoever takes it also closes it: [`stop`](Self::stop) can then only close its own part.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.inner.stdin().take()
    }

    /// Hands out the reading end of the program's stdout, once, when it is piped.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.inner.stdout().take()
    }

    /// Hands out the reading end of the program's stderr, once, when it is piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.inner.stderr().take()
    }

    /// Waits until the program ends, then kills what it left behind in its group.
    ///
    /// Closes stdin first, unless it was taken. Can be cancelled and called again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await?;
        self.kill_group();
        Ok(status)
    }

    /// Waits until the program ends, and where that went well lets go on what it left behind.
    ///
    /// For programs whose work it is to leave something behind, such as those that hold a clipboard.
    pub async fn wait_and_leave(&mut self) -> io::Result<ExitStatus> {
        let status = self.inner.wait().await?;
        if status.success() {
            self.is_over = true;
        } else {
            self.kill_group();
        }
        Ok(status)
    }

    /// Asks the whole group to end, more firmly each time, and returns when it has.
    ///
    /// First stdin is closed, which is how a server on pipes is told to stop; after `grace` follows
    /// SIGTERM, and after `grace` once more SIGKILL. The program itself may end before those that it
    /// started: they get the same time.
    pub async fn stop(mut self, grace: Duration) -> io::Result<ExitStatus> {
        drop(self.take_stdin());
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
            tracing::debug!(group = self.pid(), ?signal, %error, "the process group took no signal");
        }
    }
}

impl Drop for Child {
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
