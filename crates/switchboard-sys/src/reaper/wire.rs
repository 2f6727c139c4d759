//! Wire protocol between a host and its reapers: Unix sockets that also carry file descriptors.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::io::FdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// First message to a new process: become the root of this host's reapers.
pub(crate) const ROOT: u8 = b'W';

/// Host to root: start a reaper that is controlled over the socket in this message.
pub(crate) const START: u8 = b'+';

/// First message to a new reaper: run the program of the request that follows, on the streams in this message.
pub(crate) const RUN: u8 = b'P';

/// First message to a new reaper: run a program like [`RUN`], but in the terminal in this message.
pub(crate) const RUN_IN_TERMINAL: u8 = b'T';

/// First message to a new process: become the program of the request that follows, in the terminal in this message.
pub(crate) const BECOME: u8 = b'B';

/// Host to reaper and to root: detach, so that the program's processes continue when the host exits.
pub(crate) const DETACH: u8 = b'l';

/// Host to reaper: send SIGTERM to the program and its descendants.
pub(crate) const TERMINATE: u8 = b't';

/// Maximum number of file descriptors in one message: the three standard streams.
const MOST_FDS: usize = 3;

/// Host to reaper: kill the program and its descendants. Closing the socket has the same effect.
pub(crate) const KILL: u8 = b'k';

/// Event that a reaper reports to its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The program runs with this pid.
    Started(i32),
    /// The program could not be started, for the reason given by this error number.
    Failed(i32),
    /// The program exited with this wait status. Its descendants may still run.
    Ended(i32),
}

impl Event {
    /// Length of an encoded event.
    pub(crate) const LENGTH: usize = 5;

    pub(crate) fn encode(self) -> [u8; Self::LENGTH] {
        let (tag, number) = match self {
            Self::Started(pid) => (b'p', pid),
            Self::Failed(error) => (b'e', error),
            Self::Ended(status) => (b'x', status),
        };
        let [a, b, c, d] = number.to_be_bytes();
        [tag, a, b, c, d]
    }

    pub(crate) fn decode([tag, a, b, c, d]: [u8; Self::LENGTH]) -> Option<Self> {
        let number = i32::from_be_bytes([a, b, c, d]);
        match tag {
            b'p' => Some(Self::Started(number)),
            b'e' => Some(Self::Failed(number)),
            b'x' => Some(Self::Ended(number)),
            _ => None,
        }
    }
}

/// Request to run a program, with its complete environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) program: OsString,
    pub(crate) cwd: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
}

impl Request {
    /// Encodes the request. Each text is prefixed by its length, and the list of arguments by their number.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        encode_text(&mut out, &self.program)?;
        encode_text(&mut out, self.cwd.as_os_str())?;
        out.extend(encode_length(self.args.len())?);
        for arg in &self.args {
            encode_text(&mut out, arg)?;
        }
        for (name, value) in &self.env {
            encode_text(&mut out, name)?;
            encode_text(&mut out, value)?;
        }
        Ok(out)
    }

    /// Decodes a request. Returns `None` if the request is truncated or malformed.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let program = decode_text(&mut bytes)?;
        let cwd = PathBuf::from(decode_text(&mut bytes)?);
        let count = decode_length(&mut bytes)?;
        let args = (0..count).map(|_| decode_text(&mut bytes)).collect::<Option<_>>()?;
        let mut env = Vec::new();
        while !bytes.is_empty() {
            env.push((decode_text(&mut bytes)?, decode_text(&mut bytes)?));
        }
        Some(Self { program, cwd, args, env })
    }
}

fn encode_text(out: &mut Vec<u8>, text: &OsStr) -> io::Result<()> {
    out.extend(encode_length(text.len())?);
    out.extend(text.as_bytes());
    Ok(())
}

pub(crate) fn encode_length(length: usize) -> io::Result<[u8; 4]> {
    u32::try_from(length).map(u32::to_be_bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn decode_text(bytes: &mut &[u8]) -> Option<OsString> {
    let length = decode_length(bytes)?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(OsString::from_vec(text.to_vec()))
}

fn decode_length(bytes: &mut &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    usize::try_from(u32::from_be_bytes(*length)).ok()
}

/// Sends one byte with file descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, byte: u8, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&[byte])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Receives one byte with file descriptors. Returns `None` at the end of the stream. Cancel-safe.
pub(crate) async fn receive(socket: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    socket.async_io(Interest::READABLE, || receive_now(socket.as_fd())).await
}

fn receive_now(socket: BorrowedFd<'_>) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    for fd in &fds {
        rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    }
    Ok((received.bytes > 0).then_some((byte[0], fds)))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
