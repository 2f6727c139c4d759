//! Handle to a program below a reaper, which is killed with all of its descendants.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::reaper::{self, Event, Pipes, Started};

/// Timeout for a reaper to kill the processes of its program. It is a little longer than the reaper's own timeout.
const KILL_LIMIT: Duration = Duration::from_secs(6);

/// A program below a reaper, which kills everything when the control socket closes.
#[derive(Debug)]
pub(super) struct Reaped {
    control: UnixStream,
    buffer: Vec<u8>,
    pub(super) pid: Pid,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
    status: Option<ExitStatus>,
    /// True once the reaper and everything that it ran have exited.
    is_gone: bool,
}

impl Reaped {
    pub(super) fn new(started: Started, pipes: Option<Pipes>) -> io::Result<Self> {
        let Started { control, pid } = started;
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("the program has no process id"))?;
        let (mut stdin, mut stdout, mut stderr) = (None, None, None);
        if let Some(pipes) = pipes {
            stdin = Some(ChildStdin::from_std(OwnedFd::from(pipes.stdin).into())?);
            stdout = Some(ChildStdout::from_std(OwnedFd::from(pipes.stdout).into())?);
            stderr = Some(ChildStderr::from_std(OwnedFd::from(pipes.stderr).into())?);
        }
        Ok(Self { control, buffer: Vec::new(), pid, stdin, stdout, stderr, status: None, is_gone: false })
    }

    /// Waits until the program exits, then until its descendants are killed.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let status = self.program_end().await?;
        self.kill().await;
        Ok(status)
    }

    /// Shuts down gracefully: closes stdin, then sends SIGTERM to all processes, then kills them.
    ///
    /// Descendants that outlive the program get SIGTERM at once, because closing stdin does not affect them.
    pub(super) async fn stop(mut self, grace: Duration) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let _ = timeout(grace, self.program_end()).await;
        if !self.is_gone {
            // An error means that the reaper has exited.
            let _ = self.control.write_all(&[reaper::TERMINATE]).await;
        }
        let _ = timeout(grace, self.end()).await;
        self.kill().await;
        self.program_end().await
    }

    /// Waits until the program exits, and lets its descendants continue.
    pub(super) async fn wait_and_detach(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let status = self.program_end().await?;
        if !self.is_gone {
            // An error means that the reaper and everything that it ran have exited.
            let _ = self.control.write_all(&[reaper::DETACH]).await;
        }
        Ok(status)
    }

    /// Waits until the program itself exits.
    async fn program_end(&mut self) -> io::Result<ExitStatus> {
        while self.status.is_none() && !self.is_gone {
            self.next().await?;
        }
        self.status.ok_or_else(|| io::Error::other("its reaper was killed"))
    }

    /// Waits until the reaper exits, which it does when no process of the program remains.
    async fn end(&mut self) -> io::Result<()> {
        while !self.is_gone {
            self.next().await?;
        }
        Ok(())
    }

    async fn next(&mut self) -> io::Result<()> {
        match reaper::next_event(&mut self.control, &mut self.buffer).await? {
            Some(Event::Ended(status)) => self.status = Some(ExitStatus::from_raw(status)),
            Some(_) => {}
            None => self.is_gone = true,
        }
        Ok(())
    }

    /// Kills all remaining processes through the reaper, and waits until the reaper has exited.
    async fn kill(&mut self) {
        if self.is_gone {
            return;
        }
        // An error means that the reaper has exited.
        let _ = self.control.write_all(&[reaper::KILL]).await;
        match timeout(KILL_LIMIT, self.end()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(pid = self.pid.as_raw_pid(), %error, "a reaper cannot be waited for");
            }
            Err(_) => {
                tracing::warn!(pid = self.pid.as_raw_pid(), "some of a program's processes cannot be killed");
            }
        }
    }
}
