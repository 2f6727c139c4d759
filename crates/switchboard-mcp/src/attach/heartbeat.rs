//! Heartbeat of an attached session, which distinguishes a stopped server from a busy one.
//!
//! The session sends a byte every two seconds over a separate connection, and the server echoes it. A call never delays
//! an echo, however long it takes. A server that was stopped by a signal, a debugger or its container keeps all
//! connections open and echoes nothing.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Duration, sleep, timeout};

use super::HANDSHAKE_TIMEOUT;

/// Greeting of a heartbeat connection.
const GREETING: &[u8] = b"{\"heartbeat\":true}\n";

/// Interval and timeout of a heartbeat.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    interval: Duration,
    /// Length of one slice: the timeout divided by [`Pace::SLICES`].
    slice: Duration,
}

impl Pace {
    /// Standard heartbeat: a stopped server is detected within 4.5 s (2 s until the next byte, 2.5 s without its echo).
    pub(super) const STANDARD: Self =
        Self { interval: Duration::from_secs(2), slice: Duration::from_millis(250) };

    /// Number of slices into which the timeout is divided.
    ///
    /// If the session's own process was stopped for a while, only the current slice elapses. The session then reads the
    /// echoes that arrived in the meantime before it declares the server silent.
    const SLICES: u32 = 10;
}

/// Liveness of a server at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// No process listens on the socket.
    Absent,
    /// The server answers.
    Answers,
    /// A process listens but does not answer.
    Silent,
}

/// Probes whether a server answers at a socket. Takes at most two seconds.
pub async fn probe(path: &Path) -> Liveness {
    let stream = match switchboard_sys::socket::connect(path).await {
        Ok(stream) => stream,
        // The server's listen backlog is full, so it does not accept connections.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Liveness::Silent,
        Err(_) => return Liveness::Absent,
    };
    match timeout(HANDSHAKE_TIMEOUT, Heartbeat::open(stream)).await {
        // A server at its heartbeat limit closes the connection without an echo, which also shows that it is alive.
        Ok(_) => Liveness::Answers,
        Err(_) => Liveness::Silent,
    }
}

/// Echoes the bytes of a session until it closes the connection.
pub(super) async fn echo(mut stream: UnixStream) {
    let mut bytes = [0; 16];
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Session side of a heartbeat.
#[derive(Debug)]
pub(super) struct Heartbeat {
    stream: UnixStream,
}

/// Outcome of one beat.
#[derive(Debug, PartialEq, Eq)]
enum BeatOutcome {
    Echoed,
    Closed,
    Silent,
}

impl Heartbeat {
    /// Connects a heartbeat to a server and waits for its first echo.
    pub(super) async fn connect(path: &Path) -> io::Result<Self> {
        timeout(HANDSHAKE_TIMEOUT, Self::open(switchboard_sys::socket::connect(path).await?)).await?
    }

    async fn open(mut stream: UnixStream) -> io::Result<Self> {
        stream.write_all(GREETING).await?;
        stream.write_all(&[0]).await?;
        stream.read_exact(&mut [0]).await?;
        Ok(Self { stream })
    }

    /// Returns once the server is silent. A server that exits is detected on the session's own connection instead.
    pub(super) async fn wait_for_silence(mut self, pace: Pace) {
        loop {
            sleep(pace.interval).await;
            match self.beat(pace).await {
                BeatOutcome::Echoed => {}
                BeatOutcome::Silent => return,
                BeatOutcome::Closed => std::future::pending().await,
            }
        }
    }

    async fn beat(&mut self, pace: Pace) -> BeatOutcome {
        if self.stream.write_all(&[0]).await.is_err() {
            return BeatOutcome::Closed;
        }
        for _ in 0..Pace::SLICES {
            match timeout(pace.slice, self.stream.read(&mut [0; 16])).await {
                Ok(Ok(1..)) => return BeatOutcome::Echoed,
                Ok(Ok(0) | Err(_)) => return BeatOutcome::Closed,
                Err(_) => {}
            }
        }
        BeatOutcome::Silent
    }
}

#[cfg(test)]
#[path = "heartbeat_tests.rs"]
mod tests;
