//! Heartbeat of an attached session, which tells a stopped server from a busy one.
//!
//! The session sends a byte every two seconds over a connection of its own, and the server echoes it. No call delays an
//! echo, however long it takes. A server that was stopped by a signal, by a debugger or with its container keeps all
//! connections open and echoes nothing.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Duration, sleep, timeout};

use super::HANDSHAKE_TIMEOUT;

/// The greeting of a connection that is a heartbeat.
const GREETING: &[u8] = b"{\"heartbeat\":true}\n";

/// How often a session sends a byte, and how long it waits for the echo.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    interval: Duration,
    /// One of the [`Pace::SLICES`] in which an echo is awaited.
    slice: Duration,
}

impl Pace {
    /// A stopped server is noticed within 4.5 s: 2 s until the next byte, 2.5 s without its echo.
    pub(super) const STANDARD: Self =
        Self { interval: Duration::from_secs(2), slice: Duration::from_millis(250) };

    /// Of a session that was itself stopped for a while, only the slice in which that happened has passed. It reads the
    /// echoes that came meanwhile before it calls the server silent.
    const SLICES: u32 = 10;
}

/// Whether a server is at a socket, and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// No process listens there.
    Absent,
    /// The server answers.
    Answers,
    /// A process listens there and does nothing.
    Silent,
}

/// Finds out whether a server answers at a socket. Takes at most two seconds.
pub async fn probe(path: &Path) -> Liveness {
    let stream = match switchboard_sys::socket::connect(path).await {
        Ok(stream) => stream,
        // As many connections as the system lets wait are waiting to be accepted.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Liveness::Silent,
        Err(_) => return Liveness::Absent,
    };
    match timeout(HANDSHAKE_TIMEOUT, Heartbeat::open(stream)).await {
        // A server that has no room for another heartbeat closes it.
        Ok(_) => Liveness::Answers,
        Err(_) => Liveness::Silent,
    }
}

/// Echoes what a session sends until it closes the connection.
pub(super) async fn echo(mut stream: UnixStream) {
    let mut bytes = [0; 16];
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// The session's end of a heartbeat.
#[derive(Debug)]
pub(super) struct Heartbeat {
    stream: UnixStream,
}

/// Outcome of one byte.
#[derive(Debug, PartialEq, Eq)]
enum BeatOutcome {
    Echoed,
    Closed,
    Silent,
}

impl Heartbeat {
    /// Opens a heartbeat with a server that answers.
    pub(super) async fn connect(path: &Path) -> io::Result<Self> {
        timeout(HANDSHAKE_TIMEOUT, Self::open(switchboard_sys::socket::connect(path).await?)).await?
    }

    async fn open(mut stream: UnixStream) -> io::Result<Self> {
        stream.write_all(GREETING).await?;
        stream.write_all(&[0]).await?;
        stream.read_exact(&mut [0]).await?;
        Ok(Self { stream })
    }

    /// Returns once the server is silent. The end of a server shows in the connection of the session itself.
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
