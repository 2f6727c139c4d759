//! Detection of clients that hung up, as opposed to clients that closed only their write half.
//!
//! A client that closes its stdin still reads answers. A killed client does not, and a call that continued for it would
//! consume messages that no client is shown. Both cases cause an end of file; only in the second case does the socket
//! report a hang-up.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Poll interval after the end of the input. The session ends soon afterwards in any case.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Connection of a session, which can be checked for a hang-up at any moment.
///
/// A process that was stopped and then continued first finds the requests that its clients sent before they
/// disconnected. The session has failed over meanwhile, so executing such a call would execute it twice, and messages
/// shown to it would be lost.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// Socket, which the session keeps open; `None` if the transport cannot detect a hang-up.
    socket: Option<Weak<OwnedFd>>,
}

impl Connection {
    /// Returns true if the client has closed the connection, or the session has ended.
    pub fn is_closed(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        socket.upgrade().is_none_or(|socket| has_hung_up(&socket))
    }
}

/// Socket of a session, separate from the stream that reads and writes it.
pub(super) struct Socket(Arc<OwnedFd>);

impl Socket {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        Ok(Self(Arc::new(stream.as_fd().try_clone_to_owned()?)))
    }

    pub(super) fn connection(&self) -> Connection {
        Connection { socket: Some(Arc::downgrade(&self.0)) }
    }
}

/// Splits a session's stream; the returned future completes when the client hangs up.
pub(super) fn watch_hangup(
    stream: UnixStream,
    socket: Socket,
) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin, impl Future<Output = ()>) {
    let ended = CancellationToken::new();
    let (input, output) = stream.into_split();
    let input = EofWatcher { input, ended: Some(ended.clone().drop_guard()) };
    let client_gone = async move {
        ended.cancelled().await;
        while !has_hung_up(&socket.0) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    (input, output, client_gone)
}

/// Returns true if the peer neither reads nor writes any more.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let found = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    found.is_ok() && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Reader that cancels a token at the end of its input.
struct EofWatcher<R> {
    input: R,
    ended: Option<DropGuard>,
}

impl<R: AsyncRead + Unpin> AsyncRead for EofWatcher<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.input).poll_read(context, buffer);
        let is_over = matches!(&read, Poll::Ready(Ok(())) if buffer.filled().len() == before)
            || matches!(&read, Poll::Ready(Err(_)));
        if is_over {
            self.ended = None;
        }
        read
    }
}

#[cfg(test)]
#[path = "peer_tests.rs"]
mod tests;
