//! Writer for a child's stdin.
//!
//! The sender writes a message directly with one system call. If the pipe is full, the rest of the message and all
//! later messages are appended to a backlog. The backlog is written in one block, so that many messages share a system
//! call under load.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::process::ChildStdin;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::connection::{Connection, EndKind};
use super::stdio::DRAIN_TIMEOUT;
use super::transport::Full;
use crate::spec::Framing;

/// Maximum backlog, in bytes, for a child that does not read its stdin. One message may exceed the limit; the next one
/// is rejected.
const BACKLOG: usize = 64 * 1024 * 1024;

/// Handle for a child's stdin. The pipe is closed by `close` or when the last handle is dropped.
#[derive(Clone)]
pub(super) struct PipeWriter(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Wakes the task that writes the backlog.
    rest: Notify,
    framing: Framing,
}

struct State {
    stdin: Option<ChildStdin>,
    backlog: Vec<u8>,
    /// Number of bytes of the backlog that are already written.
    written: usize,
}

impl PipeWriter {
    pub(super) fn new(stdin: ChildStdin, framing: Framing) -> Self {
        let state = Mutex::new(State { stdin: Some(stdin), backlog: Vec::new(), written: 0 });
        Self(Arc::new(Inner { state, rest: Notify::new(), framing }))
    }

    /// Writes a message. Bytes that the pipe does not accept are appended to the backlog.
    pub(super) fn send(&self, body: Vec<u8>) -> Result<(), Full> {
        let message = match self.0.framing {
            Framing::Auto | Framing::Newline => {
                let mut line = body;
                line.push(b'\n');
                line
            }
            Framing::ContentLength => {
                let mut block = format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes();
                block.extend_from_slice(&body);
                block
            }
        };
        let mut state = self.0.state.lock();
        if state.backlog.len() - state.written > BACKLOG {
            return Err(Full);
        }
        let mut written = 0;
        if state.backlog.is_empty()
            && let Some(stdin) = &mut state.stdin
        {
            // A no-op waker suffices: if the pipe is full, the backlog task polls it with its own waker.
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(stdin).poll_write(&mut context, &message) {
                Poll::Ready(Ok(count)) => written = count,
                // Ignore the error: the stdout reader and the process watcher notice that the child has ended.
                Poll::Ready(Err(_)) => return Ok(()),
                Poll::Pending => {}
            }
        }
        if written < message.len() && state.stdin.is_some() {
            state.backlog.extend_from_slice(&message[written..]);
            self.0.rest.notify_one();
        }
        Ok(())
    }

    /// Closes the child's stdin, which tells the child to exit.
    pub(super) fn close(&self) {
        let mut state = self.0.state.lock();
        state.stdin = None;
        (state.backlog, state.written) = (Vec::new(), 0);
    }

    /// Writes the backlog whenever there is one, until the connection ends.
    pub(super) async fn write_backlog(self, connection: Arc<Connection>) {
        loop {
            tokio::select! {
                () = connection.ended() => return,
                () = self.0.rest.notified() => {}
            }
            let written = tokio::select! {
                () = connection.ended() => return,
                written = std::future::poll_fn(|context| self.poll_backlog(context)) => written,
            };
            // The child is usually about to exit. Its exit status is a better cause than the write error, so wait for
            // it.
            if let Err(error) = written
                && timeout(DRAIN_TIMEOUT, connection.ended()).await.is_err()
            {
                connection.end(format!("its stdin is closed ({error})"), EndKind::Crash);
            }
        }
    }

    fn poll_backlog(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state.lock();
        let State { stdin: Some(stdin), backlog, written } = &mut *state else { return Poll::Ready(Ok(())) };
        while *written < backlog.len() {
            match Pin::new(&mut *stdin).poll_write(context, &backlog[*written..]) {
                Poll::Ready(Ok(count)) => *written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    // Remove written bytes only when they are the larger part, so that moving the rest pays off.
                    if *written > backlog.len() / 2 {
                        backlog.drain(..std::mem::take(written));
                    }
                    return Poll::Pending;
                }
            }
        }
        (*backlog, *written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}
