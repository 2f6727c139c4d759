//! Process of an agent: starts it with a controlled environment, reads it line by line, stops its process group.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use switchboard_sys::lineage::LaunchKind;
use switchboard_sys::process::{Child, Spawn};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::{WorkerLog, WorkerSpec, default_program};
use crate::lines::{Line, Lines};
use crate::wire::command::AgentKind;

/// Maximum length of a line from an agent, in bytes; a diff of a large file fits.
const MAX_LINE: usize = 16 << 20;

/// Time limit for a process that closed its stdout to exit, and for its stderr to be drained.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A running process of an agent.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    lines: Lines,
    /// Deadline for reading after the process has exited, because another process may keep its stdout open.
    read_by: Option<Instant>,
    stderr_task: JoinHandle<()>,
    spec: WorkerSpec,
}

impl Program {
    /// Starts the program that the spec names, or the agent's default program, with these arguments.
    pub(super) async fn start(spec: &WorkerSpec, args: Vec<OsString>) -> Result<Self, String> {
        let launch = &spec.launch;
        let mut argv: Vec<OsString> = launch.program.iter().map(OsString::from).collect();
        if argv.is_empty() {
            argv.extend(default_program(launch.agent).iter().copied().map(OsString::from));
        }
        if argv.is_empty() {
            return Err("`program` is missing; name the program to run".to_owned());
        }
        let program = argv.remove(0);
        argv.extend(launch.args.iter().map(OsString::from));
        argv.extend(args);
        let mut allowed: Vec<&str> = launch.env_allow.iter().map(String::as_str).collect();
        allowed.extend(account_variables(launch.agent));
        let mut spawn = Spawn::new(program).args(argv).cwd(&spec.cwd).env_allow(&allowed).env(
            "SWITCHBOARD_WORKSPACE_ROOT",
            std::path::absolute(&spec.workspace).unwrap_or_else(|_| spec.workspace.clone()),
        );
        for (name, value) in &launch.env {
            spawn = spawn.env(name, value);
        }
        // `switchboard` commands of the program run as this agent, whatever variables the job defines.
        spawn = spawn.for_agent(LaunchKind::Worker, spec.name.as_str());
        let mut child = spawn.start(spec.guard.as_ref()).await.map_err(|error| {
            match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }
        })?;
        let streams = (child.stdin_writer(), child.stdout_reader(), child.stderr_reader());
        let (stdin, Some(stdout), Some(stderr)) = streams else {
            return Err("the standard streams of the program are missing".to_owned());
        };
        let stderr_task = tokio::spawn(log_stderr(stderr, Arc::clone(&spec.log)));
        Ok(Self {
            child,
            stdin,
            stdout,
            lines: Lines::new(MAX_LINE),
            read_by: None,
            stderr_task,
            spec: spec.clone(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Writes to the program's stdin.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(stdin) = &mut self.stdin else { return Err("its stdin is closed".to_owned()) };
        let written = async {
            stdin.write_all(bytes).await?;
            stdin.flush().await
        };
        written.await.map_err(|error| format!("it does not read: {error}"))
    }

    /// Writes a prompt and closes stdin, in a separate task.
    ///
    /// Without the task, a program that answers while it reads would deadlock with the router.
    pub(super) fn send_prompt(&mut self, prompt: String) {
        if let Some(mut stdin) = self.stdin.take() {
            tokio::spawn(async move {
                if let Err(error) = stdin.write_all(prompt.as_bytes()).await {
                    // A program that does not read its prompt may still answer.
                    tracing::debug!(%error, "a program did not read its prompt");
                }
            });
        }
    }

    /// Returns the next line of stdout; `None` at the end of stdout, or shortly after the program has exited. Cancel
    /// safe.
    pub(super) async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.lines.next() {
                Some(Line::Complete(line)) => return Some(line),
                Some(Line::TooLong) => {
                    tracing::warn!(limit = MAX_LINE, "skipped an agent's line that is too long");
                    continue;
                }
                None => {}
            }
            let is_more = tokio::select! {
                biased;
                read = self.lines.read(&mut self.stdout) => matches!(read, Ok(true)),
                _ = self.child.wait(), if self.read_by.is_none() => {
                    self.read_by = Some(Instant::now() + DRAIN_TIMEOUT);
                    continue;
                }
                () = sleep_until(self.read_by.unwrap_or_else(Instant::now)), if self.read_by.is_some() => false,
            };
            if !is_more {
                return match self.lines.rest() {
                    Some(Line::Complete(line)) => Some(line),
                    _ => None,
                };
            }
        }
    }

    /// Waits for the exit of a program that has closed its stdout.
    ///
    /// Returns whether the program succeeded, and how it ended.
    pub(super) async fn wait_exit(mut self) -> (bool, String) {
        self.stdin = None;
        let ended = timeout(DRAIN_TIMEOUT, self.child.wait()).await;
        let _ = timeout(DRAIN_TIMEOUT, &mut self.stderr_task).await;
        match ended {
            Ok(Ok(status)) => (status.success(), format!("it ended ({status})")),
            Ok(Err(error)) => (false, format!("it cannot be waited for: {error}")),
            Err(_) => (false, "it closed its stdout and was killed".to_owned()),
        }
    }

    /// Stops the program and its process group.
    pub(super) async fn stop(mut self) -> String {
        self.stdin = None;
        let ended = self.child.stop(self.spec.grace).await;
        let _ = timeout(DRAIN_TIMEOUT, &mut self.stderr_task).await;
        match ended {
            Ok(status) => format!("it was stopped ({status})"),
            Err(error) => format!("it cannot be waited for: {error}"),
        }
    }
}

/// Logs the program's stderr.
async fn log_stderr(mut stderr: ChildStderr, log: Arc<WorkerLog>) {
    let mut lines = Lines::new(64 << 10);
    while let Ok(true) = lines.read(&mut stderr).await {
        while let Some(line) = lines.next() {
            match line {
                Line::Complete(line) => log.append_line(&line),
                Line::TooLong => log.append_line(b"(a line that is too long)"),
            }
        }
    }
    if let Some(Line::Complete(line)) = lines.rest() {
        log.append_line(&line);
    }
}

/// Returns the environment variables that hold the agent's account and settings.
fn account_variables(agent: AgentKind) -> &'static [&'static str] {
    match agent {
        AgentKind::Codex | AgentKind::CodexExec => &["CODEX_*", "OPENAI_*"],
        AgentKind::Claude => &["ANTHROPIC_*", "CLAUDE_*"],
        AgentKind::Gemini => &["GEMINI_*", "GOOGLE_*"],
        AgentKind::Opencode => &["OPENCODE_*"],
        AgentKind::Goose => &["GOOSE_*"],
        AgentKind::Acp | AgentKind::Command | AgentKind::Echo => &[],
    }
}
