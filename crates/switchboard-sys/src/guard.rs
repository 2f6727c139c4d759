//! The host's side of its [reapers](crate::reaper): starts them, and programs below them.

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

use crate::process::Spawn;
use crate::reaper::wire::{self, Event, Request};

/// How long a reaper may take to start its program. It is one process that starts another.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A handle on the reapers of this process. Cheap to clone; the root starts with the first program.
#[derive(Debug, Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: OsString,
    args: Vec<OsString>,
    root: Mutex<Option<StdUnixStream>>,
}

/// A program that was started below a reaper.
pub(crate) struct Started {
    pub(crate) control: UnixStream,
    pub(crate) pid: i32,
}

/// Our ends of a program's streams.
pub(crate) struct Pipes {
    pub(crate) stdin: PipeWriter,
    pub(crate) stdout: PipeReader,
    pub(crate) stderr: PipeReader,
}

/// Why a program does not run below a reaper.
#[derive(Debug, thiserror::Error)]
enum Failed {
    /// The program's own fault, or another that lasts.
    #[error(transparent)]
    Lasting(#[from] io::Error),
    /// Its reaper or the root ended.
    #[error("its reaper ended")]
    Gone,
}

impl Guard {
    /// A guard whose reapers are this program with these arguments, which calls [`run`](crate::reaper::run) with its
    /// stdin.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self(Arc::new(Inner { program: program.into(), args, root: Mutex::default() }))
    }

    /// Starts a program below a reaper of its own, on three pipes. Needs a Tokio runtime.
    pub(crate) async fn start(&self, request: &Request) -> io::Result<(Started, Pipes)> {
        let (their_stdin, stdin) = io::pipe()?;
        let (stdout, their_stdout) = io::pipe()?;
        let (stderr, their_stderr) = io::pipe()?;
        let streams = [their_stdin.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()];
        let started = self.start_on(request, wire::RUN, &streams).await?;
        Ok((started, Pipes { stdin, stdout, stderr }))
    }

    /// Starts a program below a reaper of its own, as the leader of a session with this terminal.
    pub(crate) async fn start_in_terminal(
        &self,
        request: &Request,
        terminal: BorrowedFd<'_>,
    ) -> io::Result<Started> {
        self.start_on(request, wire::RUN_IN_TERMINAL, &[terminal]).await
    }

    /// Has the root leave alone what its reapers leave alone when this process ends.
    pub fn leave(&self) {
        if let Some(root) = &*self.0.root.lock()
            && let Err(error) = wire::send(root.as_fd(), wire::LEAVE, &[])
        {
            tracing::debug!(%error, "the root of the reapers is gone");
        }
    }

    async fn start_on(&self, request: &Request, kind: u8, streams: &[BorrowedFd<'_>]) -> io::Result<Started> {
        match self.try_to_start(request, kind, streams).await {
            Err(Failed::Gone) => {}
            Err(Failed::Lasting(error)) => return Err(error),
            Ok(started) => return Ok(started),
        }
        // The root may have been killed since the last program, which is noticed only now.
        match self.try_to_start(request, kind, streams).await {
            Ok(started) => Ok(started),
            Err(Failed::Lasting(error)) => Err(error),
            Err(gone) => Err(io::Error::other(gone)),
        }
    }

    async fn try_to_start(
        &self,
        request: &Request,
        kind: u8,
        streams: &[BorrowedFd<'_>],
    ) -> Result<Started, Failed> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut control = UnixStream::from_std(ours)?;
        self.ask_root(&theirs)?;
        drop(theirs);
        // The socket is new and takes a byte at once.
        wire::send(control.as_fd(), kind, streams).map_err(gone_or_lasting)?;
        let answer = async {
            let bytes = request.encode()?;
            control.write_all(&wire::length(bytes.len())?).await?;
            control.write_all(&bytes).await?;
            first(&mut control).await
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "its reaper does not answer");
        let answer = timeout(START_LIMIT, answer).await.map_err(|_| late())?;
        match answer.map_err(gone_or_lasting)? {
            Some(Event::Started(pid)) => Ok(Started { control, pid }),
            Some(Event::Failed(number)) => Err(io::Error::from_raw_os_error(number).into()),
            Some(Event::Ended(_)) | None => Err(Failed::Gone),
        }
    }

    /// Asks the root, which is started where there is none, to start a reaper at the other end of a socket.
    fn ask_root(&self, reaper: &StdUnixStream) -> io::Result<()> {
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
        // A root that is stopped must not stop this process.
        ours.set_nonblocking(true)?;
        let spawn = Spawn::new(&self.0.program).args(&self.0.args).cwd("/");
        let spawn =
            spawn.name(crate::lineage::PROGRAM).stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        // It ends by itself when the socket is closed.
        spawn.spawn().map_err(io::Error::other)?.leave();
        wire::send(ours.as_fd(), wire::ROOT, &[])?;
        Ok(ours)
    }
}

/// The first event of a reaper and nothing of the next, which may have come with it.
async fn first(control: &mut UnixStream) -> io::Result<Option<Event>> {
    let mut bytes = [0; Event::LENGTH];
    match control.read_exact(&mut bytes).await {
        Ok(_) => Ok(Event::decode(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The next event of a reaper; `None` when it is gone, with all that it ran. Can be cancelled and called again with the
/// same buffer.
pub(crate) async fn next(control: &mut UnixStream, buffer: &mut Vec<u8>) -> io::Result<Option<Event>> {
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

/// That the other end is closed means that its process has ended.
fn gone_or_lasting(error: io::Error) -> Failed {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Failed::Gone,
        _ => Failed::Lasting(error),
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
