//! Standard streams as asynchronous streams.
//!
//! Tokio's own handles read and write on other threads, with one hand-over per message, and a pending read prevents the
//! runtime from shutting down. Pipes and sockets are therefore registered with the event loop. Each stream is
//! registered separately, because shells create pipes and Node creates socket pairs. Terminals and files are handled by
//! a thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::error::McpError;

/// Opens stdin. Requires a Tokio runtime with IO.
pub fn input() -> Result<Box<dyn AsyncRead + Send + Unpin>, McpError> {
    let failed = |source| McpError::Stdio { stream: "stdin", source };
    // Reopen the pipe, so that `O_NONBLOCK` is set for this process only and not for others that share it. This fails
    // without `/proc`, and if stdin is not a pipe.
    if let Ok(pipe) = pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
        return Ok(Box::new(pipe));
    }
    let stdin = io::stdin();
    if is_socket(stdin.as_fd()) {
        return Ok(Box::new(socket(stdin.as_fd()).map_err(failed)?));
    }
    // A terminal must stay in blocking mode for the shell that shares it, and a file cannot be polled. A separate
    // thread therefore blocks on the read; unlike a thread of Tokio, it does not prevent the process from exiting.
    let (reader, mut writer) = io::pipe().map_err(failed)?;
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            // Ignore the result: in all cases the reader of the pipe sees an end of file.
            let _ = io::copy(&mut io::stdin().lock(), &mut writer);
        })
        .map_err(failed)?;
    Ok(Box::new(pipe::Receiver::from_owned_fd(reader.into()).map_err(failed)?))
}

/// Opens stdout. Requires a Tokio runtime with IO.
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
