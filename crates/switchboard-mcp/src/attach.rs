//! Attached sessions: sessions over stdio that a running `serve` answers, with failover to this process.
//!
//! The process that the client starts relays lines to the server, which already has the hub and the servers behind
//! suites open. It records the state that a new server needs ([`ReplayState`]). If the connection breaks or the server
//! is silent ([`Heartbeat`]), this process starts a server of its own, replays that state to it and then the unanswered
//! calls. The client does not notice.
//!
//! A silent server may be resumed later. Before the failover the session closes its connection, which fences that
//! server off: the server executes no call from a closed [`Connection`], and marks no messages as seen for it.

mod heartbeat;
mod peer;
mod replay;

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use switchboard_sys::service_lease::LeaseKey;
use switchboard_sys::socket::{SameUserListener, accept_with_retry};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, ReadHalf,
    WriteHalf, duplex, split,
};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::heartbeat::{Heartbeat, Pace, echo};
pub use self::heartbeat::{Liveness, probe};
pub use self::peer::Connection;
use self::peer::Socket;
pub use self::replay::ToolTraits;
use self::replay::{ReplayState, ServerLine};
use crate::error::McpError;
use crate::intake::Refusal;
use crate::raw_calls::RawCallHandler;
use crate::stdio::{ClientState, LINE_LIMIT, Line, Lines, parent, serve, streams};

/// Maximum number of attached sessions, and of heartbeats. Further sessions run in their own process.
const MAX_SESSIONS: usize = 512;

/// Capacity of the queue of client lines. When the queue is full, reading stops and the client's pipe fills up
/// (backpressure).
const LINE_QUEUE: usize = 64;

/// Timeout for the server's welcome.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server that is shutting down may still hold the lease on the agent's name.
const NAME_LEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// First line of a connection, which says what the connection is for.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Greeting {
    /// The connection is the heartbeat of a session.
    Heartbeat { heartbeat: bool },
    /// The connection is a session.
    Session(Hello),
}

/// Greeting of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the client program. Another version may have other tools, so it is rejected.
    pub version: String,
    /// Agent that the client was configured for.
    pub agent: Option<String>,
    /// Tool profile, which decides which tools are listed.
    pub profile: String,
    /// Key with which the session takes over the lease on its agent's name if the server stops.
    pub lease_key: LeaseKey,
}

/// Reply of the server to [`Hello`].
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    attached: bool,
}

/// Serves attached sessions until `shutdown`. `handler` creates the handler of a session; `None` rejects the session.
pub async fn serve_attached<H, P>(
    listener: SameUserListener,
    handler: impl Fn(&Hello, Connection) -> Option<(H, P)> + Send + Sync + 'static,
    shutdown: CancellationToken,
) where
    H: rmcp::ServerHandler,
    P: RawCallHandler,
{
    let (sessions, heartbeats) = (TaskTracker::new(), TaskTracker::new());
    let handler = Arc::new(handler);
    // Heartbeats outlive the sessions: the end of a heartbeat would make its session fail over.
    let over = CancellationToken::new();
    loop {
        let stream = tokio::select! {
            accepted = accept_with_retry("attach", || listener.accept()) => accepted,
            () = shutdown.cancelled() => break,
        };
        // Allow as many connections again that have not yet sent their greeting.
        if sessions.len() >= 2 * MAX_SESSIONS {
            continue;
        }
        let (handler, shutdown, over) = (handler.clone(), shutdown.clone(), over.clone());
        let (all, heartbeats) = (sessions.clone(), heartbeats.clone());
        sessions.spawn(async move {
            let (stream, hello) = match read_greeting(stream).await {
                Some((stream, Greeting::Session(hello))) if all.len() <= MAX_SESSIONS => (stream, hello),
                Some((stream, Greeting::Heartbeat { .. })) if heartbeats.len() < MAX_SESSIONS => {
                    heartbeats.spawn(async move { over.run_until_cancelled(echo(stream)).await });
                    return;
                }
                _ => return,
            };
            let Ok(socket) = Socket::of(&stream) else { return };
            let connection = socket.connection();
            let Some((handler, raw_calls)) = handler(&hello, connection.clone()) else { return };
            let Ok(welcome) = serde_json::to_vec(&Welcome { attached: true }) else { return };
            let (input, mut output, client_gone) = peer::watch_hangup(stream, socket);
            if write_line(&mut output, welcome).await.is_ok() {
                let client = ClientState::new(connection, client_gone);
                serve(handler, raw_calls, (input, output), client, shutdown).await;
            }
        });
    }
    drop(listener);
    sessions.close();
    sessions.wait().await;
    over.cancel();
}

/// Reads the first line byte by byte, so that the bytes after it remain in the stream.
async fn read_greeting(mut stream: UnixStream) -> Option<(UnixStream, Greeting)> {
    let greeting = timeout(HANDSHAKE_TIMEOUT, read_first_line(&mut stream)).await.ok()?.ok()?;
    Some((stream, serde_json::from_slice(&greeting).ok()?))
}

async fn read_first_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.len() < 4096 {
        match stream.read_u8().await? {
            b'\n' => return Ok(line),
            byte => line.push(byte),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Attaches to a server; `None` if that is not possible.
pub async fn attach(path: &Path, hello: &Hello) -> Option<Attachment> {
    let mut stream = switchboard_sys::socket::connect(path).await.ok()?;
    write_line(&mut stream, serde_json::to_vec(hello).ok()?).await.ok()?;
    let welcome = timeout(HANDSHAKE_TIMEOUT, read_first_line(&mut stream)).await.ok()?.ok()?;
    serde_json::from_slice::<Welcome>(&welcome).ok().filter(|welcome| welcome.attached)?;
    let heartbeat = Heartbeat::connect(path).await.ok()?;
    Some(Attachment { stream, heartbeat })
}

/// Connection to a server that accepted the session, and its heartbeat.
#[derive(Debug)]
pub struct Attachment {
    stream: UnixStream,
    heartbeat: Heartbeat,
}

/// Server in this process, connected by in-memory pipes.
#[derive(Debug)]
pub struct InProcessServer {
    stream: DuplexStream,
}

impl InProcessServer {
    /// Starts the server for one session.
    pub fn start<H: rmcp::ServerHandler>(
        handler: H,
        raw_calls: impl RawCallHandler,
        shutdown: CancellationToken,
    ) -> Self {
        let (stream, theirs) = duplex(64 << 10);
        let (input, output) = split(theirs);
        let client = ClientState::new(Connection::default(), std::future::pending());
        tokio::spawn(serve(handler, raw_calls, (input, output), client, shutdown));
        Self { stream }
    }
}

/// Relays standard input and output to `attached` until the client ends the session or `shutdown`.
///
/// `start_in_process` starts the server for the failover. It is called at most once: when the connection breaks, or the
/// server is silent.
pub async fn serve_stdio_attached<F, E>(
    attached: Attachment,
    traits: ToolTraits,
    start_in_process: impl FnOnce() -> F,
    shutdown: CancellationToken,
) -> Result<(), E>
where
    F: Future<Output = Result<InProcessServer, E>>,
    E: From<McpError>,
{
    let (input, output) = (streams::input()?, streams::output()?);
    let work = relay(attached, input, output, traits, start_in_process);
    tokio::select! {
        done = work => done,
        () = shutdown.cancelled() => Ok(()),
        () = parent::wait_for_exit() => Ok(()),
    }
}

async fn relay<F, E>(
    attached: Attachment,
    input: impl AsyncRead + Send + Unpin + 'static,
    mut output: impl AsyncWrite + Unpin,
    traits: ToolTraits,
    start_in_process: impl FnOnce() -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<InProcessServer, E>>,
    E: From<McpError>,
{
    let (sender, mut lines) = mpsc::channel(LINE_QUEUE);
    let reading = tokio::spawn(read(input, sender));
    let mut session = ReplayState::new(traits)?;
    let silence = attached.heartbeat.wait_for_silence(Pace::STANDARD);
    let end = {
        let mut ends = ServerStream::of(attached.stream);
        relay_lines(&mut ends, &mut lines, &mut output, &mut session, silence).await
        // Closing the connection here fences off a server that is only stopped.
    };
    if end == EndedBy::Server {
        tracing::warn!("the server has ended or stopped; this session continues in its own process");
        let mut ends = ServerStream::of(start_in_process().await?.stream);
        if let Err(error) = replay_session(&mut ends, &mut output, &mut session).await {
            tracing::warn!(%error, "the session cannot continue");
        } else {
            relay_lines(&mut ends, &mut lines, &mut output, &mut session, std::future::pending()).await;
        }
    }
    reading.abort();
    Ok(())
}

/// Reads the client's lines into the queue.
async fn read(input: impl AsyncRead + Unpin, lines: mpsc::Sender<Line>) {
    let mut input = Lines::new(BufReader::with_capacity(64 << 10, input), LINE_LIMIT);
    while let Ok(Some(line)) = input.next().await {
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

/// Both halves of a stream to a server.
struct ServerStream<S> {
    from: BufReader<ReadHalf<S>>,
    to: WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite> ServerStream<S> {
    fn of(stream: S) -> Self {
        let (from, to) = split(stream);
        Self { from: BufReader::with_capacity(64 << 10, from), to }
    }
}

/// Side that ended a relay.
#[derive(Debug, PartialEq, Eq)]
enum EndedBy {
    Client,
    Server,
}

/// Relays lines in both directions until one side ends, or the server is silent.
async fn relay_lines<S: AsyncRead + AsyncWrite>(
    ServerStream { from, to }: &mut ServerStream<S>,
    lines: &mut mpsc::Receiver<Line>,
    output: &mut (impl AsyncWrite + Unpin),
    session: &mut ReplayState,
    silence: impl Future<Output = ()>,
) -> EndedBy {
    // The directions run concurrently: a server that is blocked on writing an answer would read no further.
    let session = parking_lot::Mutex::new(session);
    let output = tokio::sync::Mutex::new(output);
    let is_over = CancellationToken::new();
    let to_server = async {
        while let Some(line) = lines.recv().await {
            let recorded = match line {
                Line::Whole(line) => session.lock().record_line(line),
                Line::TooLong => {
                    let refusal = Refusal::too_long(LINE_LIMIT).to_json();
                    if write_line(&mut **output.lock().await, refusal).await.is_err() {
                        return EndedBy::Client;
                    }
                    continue;
                }
            };
            for line in recorded {
                if write_line(to, line).await.is_err() {
                    // Continue reading the answers that the server wrote before, up to the end of the stream.
                    return std::future::pending().await;
                }
            }
        }
        is_over.cancel();
        let _ = to.shutdown().await;
        // Pending answers are still relayed until the server closes the stream.
        std::future::pending().await
    };
    let to_client = async {
        let mut silence = std::pin::pin!(silence);
        let is_silent = loop {
            let line = tokio::select! {
                biased;
                line = next_line(from) => line,
                () = &mut silence => break true,
            };
            let Some(line) = line else { break false };
            session.lock().record_answer(&line);
            if write_line(&mut **output.lock().await, line).await.is_err() {
                return EndedBy::Client;
            }
        };
        // Wait until a line that is being written to the client is complete.
        let _output = output.lock().await;
        // A server that closes the stream has dropped its unanswered calls; a silent server has not.
        let client_ended = is_over.is_cancelled() && !(is_silent && session.lock().has_pending());
        if client_ended { EndedBy::Client } else { EndedBy::Server }
    };
    tokio::select! {
        end = to_server => end,
        end = to_client => end,
    }
}

/// Replays the session's state to a new server, then the unanswered calls.
async fn replay_session<S: AsyncRead + AsyncWrite>(
    ServerStream { from, to }: &mut ServerStream<S>,
    output: &mut (impl AsyncWrite + Unpin),
    session: &mut ReplayState,
) -> io::Result<()> {
    let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "the new server has ended as well");
    let until = Instant::now() + NAME_LEASE_TIMEOUT;
    for line in session.opening_lines() {
        loop {
            write_line(to, line.clone()).await?;
            if !ReplayState::expects_answer(&line) {
                break;
            }
            let succeeded = loop {
                match ReplayState::classify(&next_line(from).await.ok_or_else(closed)?, &line) {
                    ServerLine::Answer { is_error } => break !is_error,
                    ServerLine::Other => {}
                }
            };
            // Retry: a server that is shutting down may hold the lease on the agent's name for a moment.
            if succeeded || Instant::now() > until {
                break;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
    for (line, refusal) in session.drain_unanswered() {
        match refusal {
            None => write_line(to, line).await?,
            Some(refusal) => write_line(output, refusal).await?,
        }
    }
    Ok(())
}

async fn next_line(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    // An incomplete last line is not a message.
    match from.read_until(b'\n', &mut line).await {
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            Some(line)
        }
        _ => None,
    }
}

async fn write_line(to: &mut (impl AsyncWrite + Unpin), mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    to.write_all(&line).await?;
    to.flush().await
}
