//! Our standard streams as something that can be waited for.
//!
//! Tokio's own handles read and write on other threads, one hand-over per message, and a read that is
//! waiting keeps the runtime from ending. So a pipe or a socket is put on the event loop, each side by
//! itself: shells make pipes, Node makes a pair of sockets. What remains is a terminal or a file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::error::McpError;

/// Opens stdin. Needs a Tokio runtime with IO.
pub fn input() -> Result<Box<dyn AsyncRead + Send + Unpin>, McpError> {
    let failed = |source| McpError::Stdio { stream: "stdin", source };
    // Opened anew, so that the flag for not waiting is ours alone and not also that of other programs which
    // have the same pipe. Where there is no `/proc`, and where this is no pipe, there is nothing to open.
    if let Ok(pipe) = pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
        return Ok(Box::new(pipe));
    }
    let stdin = io::stdin();
    if is_socket(stdin.as_fd()) {
        return Ok(Box::new(socket(stdin.as_fd()).map_err(failed)?));
    }
    // A terminal must keep waiting for the shell that shares it, and a file cannot be waited for. A thread
    // of our own does the waiting, and unlike one of Tokio's it does not keep the process from ending.
    let (reader, mut writer) = io::pipe().map_err(failed)?;
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            // Whatever ends this, the other end of the pipe sees the end of its input.
            let _ = io::copy(&mut io::stdin().lock(), &mut writer);
        })
        .map_err(failed)?;
    Ok(Box::new(pipe::Receiver::from_owned_fd(reader.into()).map_err(failed)?))
}

/// Opens stdout. Needs a Tokio runtime with IO.
pub fn output() -> Result<Box<dyn AsyncWrite + Send + Unpin>, McpError> {
    if let Ok(pipe) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
        return Ok(Box::new(pipe));
    }
    let stdout = io::stdout();
    if is_socket(stdout.as_fd()) {
        let failed = |source| McpError::Stdio { stream: "stdout", source };
        return Ok(Box::new(socket(stdout.as_fd()).map_err(failed)?));
    }
    Ok(Box::new(tokio::io::stdout()))
}

fn is_socket(stream: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

fn socket(stream: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(stream.try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
