//! Processes that kill what a host has started, however the host ends.
//!
//! A host starts one root, and the root starts one reaper for each program:
//!
//! ```text
//! host → root (subreaper) → reaper (subreaper) → program → whatever it starts
//! ```
//!
//! On Linux a descendant that leaves its process group, its session and its parent, and clears its environment, becomes
//! a child of the nearest subreaper above it. So a reaper kills its children until it has none, and then nothing of its
//! program is left. No process is killed that does not descend from the program: a child that was not collected yet
//! keeps its pid, so that a kill never hits a later process with the same number.
//!
//! Each process notices the end of those above it: a reaper the host's by the end of its control socket and the root's
//! by the end of a pipe, the root the host's by the end of its own socket. Where a reaper itself is killed, its program
//! becomes the root's child, and the root kills it. The host sees the end of a control socket only after that, because
//! the root holds a copy until then.
//!
//! Elsewhere than on Linux, what leaves its parent is lost unless it stays in the program's process group.

pub(crate) mod wire;

mod one;
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

use self::wire::Request;
use crate::platform;

/// How long is killed at most. A process that is still there waits for a device, or belongs to another user.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// The pause between two rounds of killing: an orphan appears when its parent has ended.
const KILL_PAUSE: Duration = Duration::from_millis(1);

/// Runs a root or a reaper, as the first message on this socket says, until its work is done.
pub async fn run(control: OwnedFd) -> io::Result<()> {
    platform::set_process_name(c"reaper");
    let control = std::os::unix::net::UnixStream::from(control);
    control.set_nonblocking(true)?;
    let control = UnixStream::from_std(control)?;
    match wire::receive(&control).await? {
        Some((wire::ROOT, _)) => root::Root::new(control)?.run().await,
        Some((wire::RUN, fds)) => match <[OwnedFd; 3]>::try_from(fds) {
            Ok(streams) => one::run(control, Streams::Pipes(streams)).await,
            Err(_) => Err(io::Error::other("a program needs three streams")),
        },
        Some((wire::RUN_IN_TERMINAL, fds)) => one::run(control, Streams::Terminal(only(fds)?)).await,
        Some((wire::BECOME, fds)) => terminal::become_program(control, only(fds)?).await,
        Some(_) => Err(io::Error::other("this message is not known")),
        // The host ended before it said anything.
        None => Ok(()),
    }
}

/// What a program reads from and writes to.
enum Streams {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

fn only(mut fds: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    fds.pop().ok_or_else(|| io::Error::other("a file descriptor is missing"))
}

/// Makes this process the one that gets orphans, and one that a service manager or a terminal does not end.
fn watch_over() -> io::Result<bool> {
    ignore_requests_to_end()?;
    Ok(platform::become_subreaper())
}

/// This program once more, as another of these processes.
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

/// The program of a request, with its arguments, environment and folder.
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

/// Goes on after the signals that a service manager or a terminal sends to all processes at once: the host ends what it
/// started in its own time. Programs get the default again.
fn ignore_requests_to_end() -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()] {
        // The handler stays when its receiver is dropped.
        drop(signal(kind)?);
    }
    Ok(())
}

/// Collects the children that have ended, and says whether there are others.
fn collect(mut ended: impl FnMut(Pid, WaitStatus)) -> Rest {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return Rest::Some,
            Err(Errno::INTR) => {}
            Err(_) => return Rest::None,
        }
    }
}

/// Whether a process has children that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    None,
    Some,
}

/// The children of this process that have not been collected.
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
