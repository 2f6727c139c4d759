//! Server side of a [`ReaperClient`](super::ReaperClient): the root and its reapers.

mod program;
mod root;
mod terminal;

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use super::wire::{self, Request};
use crate::platform;

/// Timeout for killing processes.
///
/// A process that survives this timeout waits for a device, or belongs to another user.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Delay between two rounds of killing, because an orphan appears only after its parent has exited.
const KILL_PAUSE: Duration = Duration::from_millis(1);

/// Runs a root or a reaper until it is finished. The first message on the socket says which of them.
pub async fn run(control: OwnedFd) -> io::Result<()> {
    platform::set_process_name(c"reaper");
    let control = std::os::unix::net::UnixStream::from(control);
    control.set_nonblocking(true)?;
    let control = UnixStream::from_std(control)?;
    match wire::receive(&control).await? {
        Some((wire::ROOT, _)) => root::Root::new(control)?.run().await,
        Some((wire::RUN, fds)) => match <[OwnedFd; 3]>::try_from(fds) {
            Ok(streams) => program::run(control, Streams::Pipes(streams)).await,
            Err(_) => Err(io::Error::other("a program needs three streams")),
        },
        Some((wire::RUN_IN_TERMINAL, fds)) => program::run(control, Streams::Terminal(only(fds)?)).await,
        Some((wire::BECOME, fds)) => terminal::become_program(control, only(fds)?).await,
        Some(_) => Err(io::Error::other("this message is not known")),
        // The host exited before the first message.
        None => Ok(()),
    }
}

/// Standard streams of a program.
enum Streams {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

fn only(mut fds: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    fds.pop().ok_or_else(|| io::Error::other("a file descriptor is missing"))
}

/// Makes this process a subreaper that ignores termination signals. Returns false if the system has no subreapers.
fn become_supervisor() -> io::Result<bool> {
    ignore_requests_to_end()?;
    Ok(platform::become_subreaper())
}

/// Returns a command that starts this program as another root or reaper process.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the other end of the one place where programs are started"
)]
fn own_process(control: OwnedFd) -> io::Result<Command> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut command = Command::new(platform::own_program()?);
    command.arg0(name).args(arguments).current_dir("/");
    command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

async fn read_request(control: &mut UnixStream) -> io::Result<Request> {
    let length = usize::try_from(control.read_u32().await?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    control.read_exact(&mut bytes).await?;
    Request::decode(&bytes).ok_or_else(|| io::Error::other("the request is malformed"))
}

/// Returns the command of a request, with its arguments, environment and folder.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the other end of the one place where programs are started"
)]
fn command(request: &Request) -> Command {
    let mut command = Command::new(&request.program);
    command.args(&request.args).current_dir(&request.cwd).env_clear();
    command.envs(request.env.iter().map(|(name, value)| (name, value)));
    command
}

/// Ignores the signals that a service manager or a terminal sends to all processes at once.
///
/// The host stops its programs in its own order. Started programs get the default handlers.
fn ignore_requests_to_end() -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()] {
        // The signal handler stays installed when its receiver is dropped.
        drop(signal(kind)?);
    }
    Ok(())
}

/// Reaps the children that have exited. Returns whether other children remain.
fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> Rest {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return Rest::Some,
            Err(Errno::INTR) => {}
            Err(_) => return Rest::None,
        }
    }
}

/// Result of reaping: whether running children remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    None,
    Some,
}

/// Returns the children of this process that have not been reaped.
fn children() -> HashSet<Pid> {
    platform::children().into_iter().filter_map(pid).collect()
}

fn kill(child: Pid) {
    if let Err(error) = rustix::process::kill_process(child, Signal::KILL) {
        tracing::debug!(pid = child.as_raw_pid(), %error, "a process cannot be killed");
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}
