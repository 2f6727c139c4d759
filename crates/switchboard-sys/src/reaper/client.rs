//! Client side of the [reapers](crate::reaper): starts reapers, and programs below them.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::wire::{self, Event, Request};
use crate::process::Spawn;

/// Timeout for a reaper to start its program, which is generous for starting a single process.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Handle to the reapers of this process. Cheap to clone.
///
/// The root is started with the first program.
#[doc(alias = "supervisor")]
#[doc(alias = "subreaper")]
#[derive(Debug, Clone)]
pub struct ReaperClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: OsString,
    args: Vec<OsString>,
    root: Mutex<Option<StdUnixStream>>,
}

/// A program that runs below a reaper.
pub(crate) struct Started {
    pub(crate) control: UnixStream,
    pub(crate) pid: i32,
}

/// This process's ends of a program's standard streams.
pub(crate) struct Pipes {
    pub(crate) stdin: PipeWriter,
    pub(crate) stdout: PipeReader,
    pub(crate) stderr: PipeReader,
}

/// Error of starting a program below a reaper.
#[derive(Debug, thiserror::Error)]
enum StartError {
    /// Permanent error, for example of the program itself.
    #[error(transparent)]
    Permanent(#[from] io::Error),
    /// The program's reaper or the root exited, so a retry can succeed.
    #[error("its reaper ended")]
    Exited,
}

impl ReaperClient {
    /// Creates a client whose reapers run this program with these arguments.
    ///
    /// The program must call [`run`](crate::reaper::run) with its stdin.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self(Arc::new(Inner { program: program.into(), args, root: Mutex::default() }))
    }

    /// Starts a program below its own reaper, on three pipes. Requires a Tokio runtime.
    pub(crate) async fn start(&self, request: &Request) -> io::Result<(Started, Pipes)> {
        let (their_stdin, stdin) = io::pipe()?;
        let (stdout, their_stdout) = io::pipe()?;
        let (stderr, their_stderr) = io::pipe()?;
        let streams = [their_stdin.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()];
        let started = self.start_on(request, wire::RUN, &streams).await?;
        Ok((started, Pipes { stdin, stdout, stderr }))
    }

    /// Starts a program below its own reaper, as the leader of a session with this terminal.
    pub(crate) async fn start_in_terminal(
        &self,
        request: &Request,
        terminal: BorrowedFd<'_>,
    ) -> io::Result<Started> {
        self.start_on(request, wire::RUN_IN_TERMINAL, &[terminal]).await
    }

    /// Detaches the root from this process.
    ///
    /// When this process exits, the root then does not kill programs that their reapers have detached.
    pub fn detach(&self) {
        if let Some(root) = &*self.0.root.lock()
            && let Err(error) = wire::send(root.as_fd(), wire::DETACH, &[])
        {
            tracing::debug!(%error, "the root of the reapers is gone");
        }
    }

    async fn start_on(&self, request: &Request, kind: u8, streams: &[BorrowedFd<'_>]) -> io::Result<Started> {
        match self.try_start(request, kind, streams).await {
            Err(StartError::Exited) => {}
            Err(StartError::Permanent(error)) => return Err(error),
            Ok(started) => return Ok(started),
        }
        // The root may have been killed since the last start, which is noticed only now, so the start is retried once.
        match self.try_start(request, kind, streams).await {
            Ok(started) => Ok(started),
            Err(StartError::Permanent(error)) => Err(error),
            Err(gone) => Err(io::Error::other(gone)),
        }
    }

    async fn try_start(
        &self,
        request: &Request,
        kind: u8,
        streams: &[BorrowedFd<'_>],
    ) -> Result<Started, StartError> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut control = UnixStream::from_std(ours)?;
        self.request_reaper(&theirs)?;
        drop(theirs);
        // The socket is new and accepts a byte without blocking.
        wire::send(control.as_fd(), kind, streams).map_err(classify)?;
        let answer = async {
            let bytes = request.encode()?;
            control.write_all(&wire::encode_length(bytes.len())?).await?;
            control.write_all(&bytes).await?;
            first(&mut control).await
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "its reaper does not answer");
        let answer = timeout(START_LIMIT, answer).await.map_err(|_| late())?;
        match answer.map_err(classify)? {
            Some(Event::Started(pid)) => Ok(Started { control, pid }),
            Some(Event::Failed(number)) => Err(io::Error::from_raw_os_error(number).into()),
            Some(Event::Ended(_)) | None => Err(StartError::Exited),
        }
    }

    /// Requests a reaper from the root, and starts the root if there is none.
    ///
    /// The argument is the reaper's end of its control socket.
    fn request_reaper(&self, reaper: &StdUnixStream) -> io::Result<()> {
        let mut root = self.0.root.lock();
        if let Some(known) = &*root
            && wire::send(known.as_fd(), wire::START, &[reaper.as_fd()]).is_ok()
        {
            return Ok(());
        }
        let started = self.start_root()?;
        wire::send(started.as_fd(), wire::START, &[reaper.as_fd()])?;
        *root = Some(started);
        Ok(())
    }

    fn start_root(&self) -> io::Result<StdUnixStream> {
        let (ours, theirs) = StdUnixStream::pair()?;
        // A stopped root must not block this process.
        ours.set_nonblocking(true)?;
        let spawn = Spawn::new(&self.0.program).args(&self.0.args).cwd("/");
        let spawn =
            spawn.name(crate::lineage::PROGRAM).stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        // The root exits by itself when its socket is closed.
        spawn.spawn().map_err(io::Error::other)?.detach();
        wire::send(ours.as_fd(), wire::ROOT, &[])?;
        Ok(ours)
    }
}

/// Reads exactly the first event of a reaper, because the next event may already follow.
async fn first(control: &mut UnixStream) -> io::Result<Option<Event>> {
    let mut bytes = [0; Event::LENGTH];
    match control.read_exact(&mut bytes).await {
        Ok(_) => Ok(Event::decode(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the next event of a reaper. Cancel-safe if it is called again with the same buffer.
///
/// Returns `None` if the reaper has exited together with everything that it ran.
pub(crate) async fn next_event(control: &mut UnixStream, buffer: &mut Vec<u8>) -> io::Result<Option<Event>> {
    loop {
        if let Some(&bytes) = buffer.first_chunk::<{ Event::LENGTH }>() {
            buffer.drain(..Event::LENGTH);
            let unknown = || io::Error::new(io::ErrorKind::InvalidData, "its reaper said something unknown");
            return Event::decode(bytes).map(Some).ok_or_else(unknown);
        }
        match control.read_buf(buffer).await {
            Ok(1..) => {}
            Ok(0) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Classifies an error. A closed socket means that the process at the other end has exited.
fn classify(error: io::Error) -> StartError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => StartError::Exited,
        _ => StartError::Permanent(error),
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
