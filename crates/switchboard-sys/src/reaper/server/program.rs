//! A reaper, which runs one program and kills all of its descendants.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use super::{
    KILL_LIMIT, KILL_PAUSE, Rest, Streams, become_supervisor, children, command, kill, pid, read_request,
    reap, terminal,
};
use crate::platform;
use crate::reaper::wire::{self, Event, Request};

/// Grace period for a program after its terminal has hung up.
const HANGUP_LIMIT: Duration = Duration::from_secs(3);

/// A program and its descendants.
struct Program {
    control: UnixStream,
    /// The program's own process, which leads a process group. `None` once the process is reaped.
    leader: Option<Pid>,
    group: Pid,
    /// Processes that were already sent SIGTERM. `None` until the host requests termination.
    asked: Option<HashSet<Pid>>,
    /// True if orphans become children of this process.
    is_subreaper: bool,
}

/// Reads a request from the socket and runs its program.
pub(super) async fn run(mut control: UnixStream, streams: Streams) -> io::Result<()> {
    let is_subreaper = become_supervisor()?;
    let has_terminal = matches!(streams, Streams::Terminal(_));
    let mut root = root_lifeline()?;
    let mut ended = signal(SignalKind::child())?;
    let request = read_request(&mut control).await?;
    let leader = match start(&request, streams) {
        Ok(leader) => leader,
        Err(error) => {
            let number = error.raw_os_error().unwrap_or_default();
            return control.write_all(&Event::Failed(number).encode()).await;
        }
    };
    let mut program = Program { control, leader: Some(leader), group: leader, asked: None, is_subreaper };
    program.report(Event::Started(leader.as_raw_pid())).await;
    let (mut byte, mut nothing) = ([0], [0]);
    let mut is_detached = false;
    loop {
        tokio::select! {
            _ = ended.recv() => {
                if program.reap().await {
                    return Ok(());
                }
            }
            read = program.control.read(&mut byte), if !is_detached => match read {
                Ok(1..) => match byte[0] {
                    wire::TERMINATE => program.terminate(),
                    wire::DETACH => is_detached = true,
                    wire::KILL => break,
                    _ => {}
                },
                Ok(0) | Err(_) => break,
            },
            // A program in the person's terminal continues without the root.
            _ = root.read(&mut nothing), if !is_detached && !has_terminal => break,
        }
    }
    if has_terminal {
        program.wait_for_hangup(&mut ended).await;
    }
    program.kill().await;
    Ok(())
}

/// Returns the pipe that closes when the root exits.
///
/// The pipe is this process's stdout, and nothing is written to it.
fn root_lifeline() -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)
}

fn start(request: &Request, streams: Streams) -> io::Result<Pid> {
    let [stdin, stdout, stderr] = match streams {
        Streams::Pipes(pipes) => pipes.map(Stdio::from),
        Streams::Terminal(terminal) => return terminal::start(request, &terminal),
    };
    let child = command(request).process_group(0).stdin(stdin).stdout(stdout).stderr(stderr).spawn()?;
    pid(child.id()).ok_or_else(|| io::Error::other("the program has no process id"))
}

impl Program {
    /// Reaps all exited processes. Returns true if none of the program's processes remain.
    async fn reap(&mut self) -> bool {
        let mut ended = Vec::new();
        let rest = reap(|pid, status| ended.push((pid, status)));
        for (pid, status) in ended {
            if self.leader == Some(pid) {
                self.leader = None;
                self.report(Event::Ended(status.as_raw())).await;
            }
            if let Some(signalled) = &mut self.asked {
                signalled.remove(&pid);
            }
        }
        if rest == Rest::Some && self.asked.is_some() {
            self.terminate();
        }
        rest == Rest::None && !self.has_stray_group()
    }

    /// Returns true if this process does not adopt orphans and processes remain in the program's group.
    fn has_stray_group(&self) -> bool {
        !self.is_subreaper && rustix::process::test_kill_process_group(self.group).is_ok()
    }

    /// Sends SIGTERM, once, to each process that descends from the program.
    fn terminate(&mut self) {
        let signalled = self.asked.get_or_insert_default();
        for descendant in platform::descendants() {
            if let Some(pid) = pid(descendant.pid)
                && signalled.insert(pid)
            {
                platform::signal_process(&descendant, Signal::TERM);
            }
        }
        if self.leader.is_none() && self.has_stray_group() {
            let _ = rustix::process::kill_process_group(self.group, Signal::TERM);
        }
    }

    /// Waits until a program whose terminal has hung up exits, because the program may save its state first.
    async fn wait_for_hangup(&mut self, ended: &mut Signals) {
        let wait = async {
            while self.leader.is_some() && ended.recv().await.is_some() {
                self.reap().await;
            }
        };
        let _ = timeout(HANGUP_LIMIT, wait).await;
    }

    /// Kills the program and its descendants: parents first, then their orphans.
    async fn kill(&mut self) {
        self.asked = None;
        if !self.is_subreaper {
            for descendant in platform::descendants() {
                platform::signal_process(&descendant, Signal::KILL);
            }
            let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        }
        let until = Instant::now() + KILL_LIMIT;
        while !self.reap().await && Instant::now() < until {
            children().into_iter().for_each(kill);
            sleep(KILL_PAUSE).await;
        }
    }

    /// Reports an event to the host. A failure is only logged, because the host may have exited.
    async fn report(&mut self, event: Event) {
        if let Err(error) = self.control.write_all(&event.encode()).await {
            tracing::debug!(%error, ?event, "the host does not listen");
        }
    }
}
