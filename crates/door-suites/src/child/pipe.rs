//! The stdin of a child.
//!
//! A message is written at once, by whoever sends it, with one call to the system. Only what the pipe does not
//! take waits, and then everything behind it waits in one heap that is written as it is: under load many
//! messages go with one call.

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
use super::stdio::LAST_WORDS;
use super::transport::Full;
use crate::spec::Framing;

/// How much may wait for a child that does not read. One message may be larger; the next is turned away.
const BACKLOG: usize = 64 * 1024 * 1024;

/// A child's stdin. Closed when it is dropped or when it is told so.
#[derive(Clone)]
pub(super) struct PipeWriter(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Rings when something is left for the task that writes what waits.
    rest: Notify,
    framing: Framing,
}

struct State {
    stdin: Option<ChildStdin>,
    backlog: Vec<u8>,
    /// How much of the backlog is written already.
    written: usize,
}

impl PipeWriter {
    pub(super) fn new(stdin: ChildStdin, framing: Framing) -> Self {
        let state = Mutex::new(State { stdin: Some(stdin), backlog: Vec::new(), written: 0 });
        Self(Arc::new(Inner { state, rest: Notify::new(), framing }))
    }

    /// Writes a message, or as much of it as the pipe takes and the rest when it takes more.
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
            // Nobody has to be woken: when the pipe is full, the task below waits for it with a waker of its own.
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(stdin).poll_write(&mut context, &message) {
                Poll::Ready(Ok(count)) => written = count,
                // The end of the child is found by those who read from it and wait for it.
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

    /// Closes the child's stdin, which is how it is told to end.
    pub(super) fn close(&self) {
        let mut state = self.0.state.lock();
        state.stdin = None;
        (state.backlog, state.written) = (Vec::new(), 0);
    }

    /// Writes what waits, for as long as the connection lasts.
    pub(super) async fn write_rest(self, connection: Arc<Connection>) {
        loop {
            tokio::select! {
                () = connection.ended() => return,
                () = self.0.rest.notified() => {}
            }
            let written = tokio::select! {
                () = connection.ended() => return,
                written = std::future::poll_fn(|context| self.poll_rest(context)) => written,
            };
            // Most often it is about to end, and then we want to know how.
            if let Err(error) = written
                && timeout(LAST_WORDS, connection.ended()).await.is_err()
            {
                connection.end(format!("it takes no more input ({error})"), EndKind::Crash);
            }
        }
    }

    fn poll_rest(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state.lock();
        let State { stdin: Some(stdin), backlog, written } = &mut *state else { return Poll::Ready(Ok(())) };
        while *written < backlog.len() {
            match Pin::new(&mut *stdin).poll_write(context, &backlog[*written..]) {
                Poll::Ready(Ok(count)) => *written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    // What is written is let go of when it is the larger part, so that moving the rest pays.
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
