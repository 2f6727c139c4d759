//! Whether the program at the other end of a socket has only said all it has to say, or is gone.
//!
//! A client that closes its stdin still reads answers. One that was killed does not, and a call that went on for it would
//! take mail that nobody is shown. Both are the end of the input; what tells them apart is that the socket hangs up.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How often to look after the end of the input. The session is over soon then in any case.
const LOOK: Duration = Duration::from_millis(20);

/// The two directions of a socket, and what fires when the other end is gone.
pub(super) fn watched(
    stream: UnixStream,
) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin, impl Future<Output = ()>) {
    let ended = CancellationToken::new();
    let socket = rustix::io::dup(&stream);
    let (input, output) = stream.into_split();
    let input = Ending { input, ended: Some(ended.clone().drop_guard()) };
    let gone = async move {
        ended.cancelled().await;
        match socket {
            Ok(socket) => {
                while !has_hung_up(&socket) {
                    tokio::time::sleep(LOOK).await;
                }
            }
            // Without a second handle there is nothing to look at; the session ends by its time.
            Err(_) => std::future::pending().await,
        }
    };
    (input, output, gone)
}

/// Whether nobody reads at the other end either.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut looked = [PollFd::new(socket, PollFlags::empty())];
    let found = poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    found.is_ok() && looked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// An input that tells of its end.
struct Ending<R> {
    input: R,
    ended: Option<DropGuard>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Ending<R> {
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
