//! Attached session: a session over stdio that a running server answers, and that goes on without it.
//!
//! The program that a client starts passes lines on to the server, which has the hub, the servers behind suites and all
//! else open already. It keeps what a new server would have to know ([`Remembered`]). When the connection breaks, or the
//! server is silent ([`Heartbeat`]), a server in this process is told that and then the calls without an answer, and the
//! client notices nothing.
//!
//! A silent server may be continued. The session closes its connection before it goes on, which fences that server off: it
//! executes no call that it finds in a closed [`Connection`], and marks no mail as seen for it.

mod heartbeat;
mod peer;
mod remembered;

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use switchboard_sys::service_lease::LeaseKey;
use switchboard_sys::socket::OwnListener;
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
pub use self::remembered::Habits;
use self::remembered::{Heard, Remembered};
use crate::error::McpError;
use crate::intake::Refused;
use crate::passing::Passing;
use crate::stdio::{LINE_LIMIT, Line, Lines, parent, serve, streams};

/// Most sessions at once, and most heartbeats. One more session goes on by itself.
const SESSIONS: usize = 512;

/// How many of the client's lines may wait. When they are that many, no more are read, and the client's pipe fills up.
const WAITING: usize = 64;

/// How long a server may take to say that it is one.
const WELCOME: Duration = Duration::from_secs(2);

/// How long the name of an agent may stay taken by a server that is about to end.
const TAKEN: Duration = Duration::from_secs(10);

/// First line of a connection.
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
    /// The version of the program: another one may have other tools.
    pub version: String,
    /// The agent that the client was configured for.
    pub agent: Option<String>,
    /// How many of the tools are listed.
    pub profile: String,
    /// With this key the session takes over the lease on its agent's name, should the server stop.
    pub lease_key: LeaseKey,
}

/// What the server says to that.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    attached: bool,
}

/// Serves attached sessions until `shutdown`. `handler` makes the handler of a session, or `None` to refuse it.
pub async fn serve_attached<H, P>(
    listener: OwnListener,
    handler: impl Fn(&Hello, Connection) -> Option<(H, P)> + Send + Sync + 'static,
    shutdown: CancellationToken,
) where
    H: rmcp::ServerHandler,
    P: Passing,
{
    let (sessions, heartbeats) = (TaskTracker::new(), TaskTracker::new());
    let handler = Arc::new(handler);
    // A heartbeat goes on until the last session has ended: its end would send the session away.
    let over = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let stream = match accepted {
            // As many again may be about to say whether they are a session or a heartbeat.
            Ok(stream) if sessions.len() < 2 * SESSIONS => stream,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(%error, "a session could not attach");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (handler, shutdown, over) = (handler.clone(), shutdown.clone(), over.clone());
        let (all, heartbeats) = (sessions.clone(), heartbeats.clone());
        sessions.spawn(async move {
            let (stream, hello) = match greeted(stream).await {
                Some((stream, Greeting::Session(hello))) if all.len() <= SESSIONS => (stream, hello),
                Some((stream, Greeting::Heartbeat { .. })) if heartbeats.len() < SESSIONS => {
                    heartbeats.spawn(async move { over.run_until_cancelled(echo(stream)).await });
                    return;
                }
                _ => return,
            };
            let Ok(socket) = Socket::of(&stream) else { return };
            let connection = socket.connection();
            let Some((handler, passing)) = handler(&hello, connection.clone()) else { return };
            let Ok(welcome) = serde_json::to_vec(&Welcome { attached: true }) else { return };
            let (input, mut output, gone) = peer::watched(stream, socket);
            if write(&mut output, welcome).await.is_ok() {
                serve(handler, passing, input, output, (connection, gone), shutdown).await;
            }
        });
    }
    drop(listener);
    sessions.close();
    sessions.wait().await;
    over.cancel();
}

/// Reads the first line of a connection, byte by byte: what follows is not ours to read.
async fn greeted(mut stream: UnixStream) -> Option<(UnixStream, Greeting)> {
    let greeting = timeout(WELCOME, first_line(&mut stream)).await.ok()?.ok()?;
    Some((stream, serde_json::from_slice(&greeting).ok()?))
}

async fn first_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.len() < 4096 {
        match stream.read_u8().await? {
            b'\n' => return Ok(line),
            byte => line.push(byte),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Attaches to a server; nothing where that is not possible.
pub async fn attach(path: &Path, hello: &Hello) -> Option<Attached> {
    let mut stream = switchboard_sys::socket::connect(path).await.ok()?;
    write(&mut stream, serde_json::to_vec(hello).ok()?).await.ok()?;
    let welcome = timeout(WELCOME, first_line(&mut stream)).await.ok()?.ok()?;
    serde_json::from_slice::<Welcome>(&welcome).ok().filter(|welcome| welcome.attached)?;
    let heartbeat = Heartbeat::connect(path).await.ok()?;
    Some(Attached { stream, heartbeat })
}

/// A connection to a server that waits for a session, and its heartbeat.
#[derive(Debug)]
pub struct Attached {
    stream: UnixStream,
    heartbeat: Heartbeat,
}

/// A server of this process, at the other end of a pair of pipes.
#[derive(Debug)]
pub struct Alone {
    stream: DuplexStream,
}

impl Alone {
    /// Starts to serve one session.
    pub fn start<H: rmcp::ServerHandler>(
        handler: H,
        passing: impl Passing,
        shutdown: CancellationToken,
    ) -> Self {
        let (stream, theirs) = duplex(64 << 10);
        let (input, output) = split(theirs);
        let client = (Connection::default(), std::future::pending());
        tokio::spawn(serve(handler, passing, input, output, client, shutdown));
        Self { stream }
    }
}

/// Has `attached` serve the program at the other end of our standard streams, until that has enough or `shutdown`.
///
/// `alone` starts a server in this process, which is done at most once: when the connection breaks, or the server is silent.
pub async fn serve_stdio_attached<F, E>(
    attached: Attached,
    habits: Habits,
    alone: impl FnOnce() -> F,
    shutdown: CancellationToken,
) -> Result<(), E>
where
    F: Future<Output = Result<Alone, E>>,
    E: From<McpError>,
{
    let (input, output) = (streams::input()?, streams::output()?);
    let work = pass_on(attached, input, output, habits, alone);
    tokio::select! {
        done = work => done,
        () = shutdown.cancelled() => Ok(()),
        () = parent::gone() => Ok(()),
    }
}

async fn pass_on<F, E>(
    attached: Attached,
    input: impl AsyncRead + Send + Unpin + 'static,
    mut output: impl AsyncWrite + Unpin,
    habits: Habits,
    alone: impl FnOnce() -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<Alone, E>>,
    E: From<McpError>,
{
    let (sender, mut lines) = mpsc::channel(WAITING);
    let reading = tokio::spawn(read(input, sender));
    let mut session = Remembered::new(habits)?;
    let silence = attached.heartbeat.silence(Pace::STANDARD);
    let end = {
        let mut ends = Ends::of(attached.stream);
        exchange(&mut ends, &mut lines, &mut output, &mut session, silence).await
        // Here the connection is closed, which fences off a server that is only stopped.
    };
    if end == End::Server {
        tracing::warn!("the server has ended or stopped; this session goes on by itself");
        let mut ends = Ends::of(alone().await?.stream);
        if let Err(error) = catch_up(&mut ends, &mut output, &mut session).await {
            tracing::warn!(%error, "the session cannot go on");
        } else {
            exchange(&mut ends, &mut lines, &mut output, &mut session, std::future::pending()).await;
        }
    }
    reading.abort();
    Ok(())
}

/// The client's lines, or that one was too long.
async fn read(input: impl AsyncRead + Unpin, lines: mpsc::Sender<Line>) {
    let mut input = Lines::new(BufReader::with_capacity(64 << 10, input), LINE_LIMIT);
    while let Ok(Some(line)) = input.next().await {
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

/// Both directions of a stream to a server.
struct Ends<S> {
    from: BufReader<ReadHalf<S>>,
    to: WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite> Ends<S> {
    fn of(stream: S) -> Self {
        let (from, to) = split(stream);
        Self { from: BufReader::with_capacity(64 << 10, from), to }
    }
}

/// Who ended an exchange.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

/// Passes lines on in both directions until one side has ended, or the server is silent.
async fn exchange<S: AsyncRead + AsyncWrite>(
    Ends { from, to }: &mut Ends<S>,
    lines: &mut mpsc::Receiver<Line>,
    output: &mut (impl AsyncWrite + Unpin),
    session: &mut Remembered,
    silence: impl Future<Output = ()>,
) -> End {
    // Neither direction waits for the other: a server that cannot get rid of an answer would read no further.
    let session = parking_lot::Mutex::new(session);
    let output = tokio::sync::Mutex::new(output);
    let is_over = CancellationToken::new();
    let upwards = async {
        while let Some(line) = lines.recv().await {
            let said = match line {
                Line::Whole(line) => session.lock().asked_line(line),
                Line::TooLong => {
                    let refused = Refused::too_long(LINE_LIMIT).to_json();
                    if write(&mut **output.lock().await, refused).await.is_err() {
                        return End::Client;
                    }
                    continue;
                }
            };
            for line in said {
                if write(to, line).await.is_err() {
                    // Answers that the server wrote before are still read, up to the end of the stream.
                    return std::future::pending().await;
                }
            }
        }
        is_over.cancel();
        let _ = to.shutdown().await;
        // What is still being answered is passed on.
        std::future::pending().await
    };
    let downwards = async {
        let mut silence = std::pin::pin!(silence);
        let is_silent = loop {
            let line = tokio::select! {
                biased;
                line = next(from) => line,
                () = &mut silence => break true,
            };
            let Some(line) = line else { break false };
            session.lock().answered(&line);
            if write(&mut **output.lock().await, line).await.is_err() {
                return End::Client;
            }
        };
        // A line to the client that was begun is ended.
        let _output = output.lock().await;
        // A server that ends has given up what is not answered by then; one that is silent has not.
        let has_enough = is_over.is_cancelled() && !(is_silent && session.lock().has_open());
        if has_enough { End::Client } else { End::Server }
    };
    tokio::select! {
        end = upwards => end,
        end = downwards => end,
    }
}

/// Tells a new server what the old one knew, then what it had not answered.
async fn catch_up<S: AsyncRead + AsyncWrite>(
    Ends { from, to }: &mut Ends<S>,
    output: &mut (impl AsyncWrite + Unpin),
    session: &mut Remembered,
) -> io::Result<()> {
    let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the new server has ended as well");
    let until = Instant::now() + TAKEN;
    for line in session.to_repeat() {
        loop {
            write(to, line.clone()).await?;
            if !Remembered::expects_answer(&line) {
                break;
            }
            let went_well = loop {
                match Remembered::is_answer(&next(from).await.ok_or_else(gone)?, &line) {
                    Heard::Answer { is_error } => break !is_error,
                    Heard::Other => {}
                }
            };
            // The server that ends still has the agent's name, for a moment.
            if went_well || Instant::now() > until {
                break;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
    for (line, refusal) in session.unanswered() {
        match refusal {
            None => write(to, line).await?,
            Some(refusal) => write(output, refusal).await?,
        }
    }
    Ok(())
}

async fn next(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    // What was begun and not finished is no message.
    match from.read_until(b'\n', &mut line).await {
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            Some(line)
        }
        _ => None,
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    to.write_all(&line).await?;
    to.flush().await
}
