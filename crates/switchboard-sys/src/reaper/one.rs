//! A reaper: runs one program and kills all that is left of it.

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

use super::wire::{self, Event, Request};
use super::{
    KILL_LIMIT, KILL_PAUSE, Rest, Streams, children, collect, command, kill, pid, read_request, terminal,
    watch_over,
};
use crate::platform;

/// How long a program may take to end after its terminal has hung up.
const HANGUP_LIMIT: Duration = Duration::from_secs(3);

/// A program and what descends from it.
struct Program {
    control: UnixStream,
    /// The program's own process, until it is collected. It leads a process group.
    leader: Option<Pid>,
    group: Pid,
    /// Those that were sent SIGTERM, once the host asks for that.
    asked: Option<HashSet<Pid>>,
    /// Whether orphans become children of this process.
    is_subreaper: bool,
}

/// Runs the program of the request that is next on the socket.
pub(super) async fn run(mut control: UnixStream, streams: Streams) -> io::Result<()> {
    let is_subreaper = watch_over()?;
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
    program.tell(Event::Started(leader.as_raw_pid())).await;
    let (mut byte, mut nothing) = ([0], [0]);
    let mut is_left = false;
    loop {
        tokio::select! {
            _ = ended.recv() => {
                if program.collect().await {
                    return Ok(());
                }
            }
            read = program.control.read(&mut byte), if !is_left => match read {
                Ok(1..) => match byte[0] {
                    wire::TERMINATE => program.terminate(),
                    wire::LEAVE => is_left = true,
                    wire::KILL => break,
                    _ => {}
                },
                Ok(0) | Err(_) => break,
            },
            // A person's own program goes on without the root.
            _ = root.read(&mut nothing), if !is_left && !has_terminal => break,
        }
    }
    if has_terminal {
        program.wait_for_hangup(&mut ended).await;
    }
    program.kill().await;
    Ok(())
}

/// The pipe that ends with the root: it is this process's stdout, to which nothing is written.
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
    /// Collects all that have ended. True when nothing is left of the program.
    async fn collect(&mut self) -> bool {
        let mut ended = Vec::new();
        let rest = collect(|pid, status| ended.push((pid, status)));
        for (pid, status) in ended {
            if self.leader == Some(pid) {
                self.leader = None;
                self.tell(Event::Ended(status.as_raw())).await;
            }
            if let Some(asked) = &mut self.asked {
                asked.remove(&pid);
            }
        }
        if rest == Rest::Some && self.asked.is_some() {
            self.terminate();
        }
        rest == Rest::None && !self.has_stray_group()
    }

    /// True where orphans do not come to this process and there are some in the program's group.
    fn has_stray_group(&self) -> bool {
        !self.is_subreaper && rustix::process::test_kill_process_group(self.group).is_ok()
    }

    /// Sends SIGTERM, once, to each process that descends from the program.
    fn terminate(&mut self) {
        let asked = self.asked.get_or_insert_default();
        for descendant in platform::descendants() {
            if let Some(pid) = pid(descendant.pid)
                && asked.insert(pid)
            {
                platform::signal_process(&descendant, Signal::TERM);
            }
        }
        if self.leader.is_none() && self.has_stray_group() {
            let _ = rustix::process::kill_process_group(self.group, Signal::TERM);
        }
    }

    /// Gives a program whose terminal has hung up time to end, which a person may have set it up to do with care.
    async fn wait_for_hangup(&mut self, ended: &mut Signals) {
        let wait = async {
            while self.leader.is_some() && ended.recv().await.is_some() {
                self.collect().await;
            }
        };
        let _ = timeout(HANGUP_LIMIT, wait).await;
    }

    /// Kills the program and all that descends from it: parents first, then those that have lost theirs.
    async fn kill(&mut self) {
        self.asked = None;
        if !self.is_subreaper {
            for descendant in platform::descendants() {
                platform::signal_process(&descendant, Signal::KILL);
            }
            let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        }
        let until = Instant::now() + KILL_LIMIT;
        while !self.collect().await && Instant::now() < until {
            children().into_iter().for_each(kill);
            sleep(KILL_PAUSE).await;
        }
    }

    /// Tells the host, if there is one.
    async fn tell(&mut self, event: Event) {
        if let Err(error) = self.control.write_all(&event.encode()).await {
            tracing::debug!(%error, ?event, "the host does not listen");
        }
    }
}
