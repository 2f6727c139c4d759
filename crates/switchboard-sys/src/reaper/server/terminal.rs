//! Programs in their own terminal, each of which leads its own session.
//!
//! Only the process itself can start a session.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use rustix::process::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::{command, own_process, pid, read_request};
use crate::reaper::wire::{self, Request};

/// Starts a process that becomes the program by `exec`. Returns after the `exec`.
pub(super) fn start(request: &Request, terminal: &OwnedFd) -> io::Result<Pid> {
    let (mut ours, theirs) = StdUnixStream::pair()?;
    let child = own_process(theirs.into())?.spawn()?;
    wire::send(ours.as_fd(), wire::BECOME, &[terminal.as_fd()])?;
    let bytes = request.encode()?;
    ours.write_all(&wire::encode_length(bytes.len())?)?;
    ours.write_all(&bytes)?;
    // A successful `exec` closes the other end. An error number before that means that starting the program failed.
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer)?;
    match answer.first_chunk() {
        Some(number) => Err(io::Error::from_raw_os_error(i32::from_be_bytes(*number))),
        None => pid(child.id()).ok_or_else(|| io::Error::other("the program has no process id")),
    }
}

/// Makes this process the leader of a session with the terminal, and then replaces it by the program.
pub(super) async fn become_program(mut control: UnixStream, terminal: OwnedFd) -> io::Result<()> {
    let request = read_request(&mut control).await?;
    let error = replace(&request, terminal).err().and_then(|error| error.raw_os_error());
    control.write_all(&error.unwrap_or_default().to_be_bytes()).await
}

/// Replaces this process by the program. Returns only on failure.
fn replace(request: &Request, terminal: OwnedFd) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(&terminal)?;
    let mut command = command(request);
    command.stdin(Stdio::from(terminal.try_clone()?)).stdout(Stdio::from(terminal.try_clone()?));
    Err(command.stderr(Stdio::from(terminal)).exec())
}
