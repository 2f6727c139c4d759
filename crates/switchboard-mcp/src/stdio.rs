//! MCP over the standard streams, for the parent process.
//!
//! Only this module writes to stdout, and only protocol messages: one JSON object per line. The server exits within two
//! seconds of its client: at the end of stdin, when stdout is closed, or when the parent process has ended although
//! another process still holds the pipe.

mod lines;
pub(crate) mod parent;
pub(crate) mod streams;

pub use self::streams::{input, output};

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either};
use futures_util::{FutureExt, poll};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::serve_server_with_ct;
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::coop::{consume_budget, unconstrained};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(crate) use self::lines::{Line, Lines};
use crate::attach::Connection;
use crate::error::McpError;
use crate::intake::{self, Refusal};
use crate::panics::Isolated;
use crate::raw_calls::{self, AnyRawCallHandler, Classified, InFlight, RawCallHandler};

/// Maximum line length in bytes. It is the same as in `rmcp`'s clients, so that this server accepts all of their
/// messages.
pub(crate) const LINE_LIMIT: usize = 16 * 1024 * 1024;

/// Capacity of the queue of messages for `rmcp`. When it is full, reading stops and the client's pipe fills up
/// (backpressure).
const MESSAGE_QUEUE: usize = 64;

/// Grace period for calls in flight after the end of the input or the shutdown. Clients kill a process that has not
/// ended after about two seconds.
const GRACE: Duration = Duration::from_secs(1);

/// Serves the parent process over the standard streams until it ends the session, or until `shutdown`.
///
/// Calls that `raw_calls` accepts do not reach `handler`. Calls may still be running on return; their cancellation
/// tokens have fired.
pub async fn serve_stdio<H: ServerHandler>(
    handler: H,
    raw_calls: impl RawCallHandler,
    shutdown: CancellationToken,
) -> Result<(), McpError> {
    let input = streams::input()?;
    let output = streams::output()?;
    let client = ClientState::new(Connection::default(), parent::wait_for_exit());
    serve(handler, raw_calls, (input, output), client, shutdown).await;
    Ok(())
}

/// Connection of a client, and a future that detects its end.
pub(crate) struct ClientState {
    connection: Connection,
    /// Future that completes when the client is gone.
    gone: BoxFuture<'static, ()>,
}

impl ClientState {
    pub(crate) fn new(connection: Connection, gone: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { connection, gone: Box::pin(gone) }
    }
}

/// Input and output of a session, type-erased.
type Streams = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Serves the client of two streams until it ends the input, closes its connection or disconnects.
pub(crate) fn serve(
    handler: impl ServerHandler,
    raw_calls: impl RawCallHandler,
    (input, output): (impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static),
    client: ClientState,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    let raw_calls = AnyRawCallHandler::new(raw_calls);
    serve_streams(Isolated::new(handler), raw_calls, (Box::new(input), Box::new(output)), client, shutdown)
        .boxed()
}

async fn serve_streams(
    handler: Isolated,
    raw_calls: AnyRawCallHandler,
    (input, output): Streams,
    client: ClientState,
    shutdown: CancellationToken,
) {
    // The connection is dropped after the guard of `over`: while an answer can be written, its connection must count as
    // open. Otherwise the answer would show messages that stay unseen.
    let ClientState { connection, gone: mut client_gone } = client;
    let output = Output::new(output);
    let (sender, messages) = mpsc::channel(MESSAGE_QUEUE);
    let input_ended = CancellationToken::new();
    // A call that continued to wait for messages would take them from the agent's next session.
    let over = CancellationToken::new();
    let _over = over.clone().drop_guard();
    let in_flight = InFlight::until(over);
    let (is_open, to) = (false, output.clone());
    let reader = Reader { output: to, raw_calls, in_flight, messages: sender, connection, is_open };
    let reader = tokio::spawn(read(input, reader, input_ended.clone()));

    let session = shutdown.child_token();
    let transport = LineTransport { output: output.clone(), messages };
    let work = async {
        match serve_server_with_ct(handler, transport, session.clone()).await {
            Ok(running) => drop(running.waiting().await),
            Err(error) => tracing::debug!(%error, "the session ended before it was initialized"),
        }
    };
    let grace_over = async {
        tokio::select! {
            () = input_ended.cancelled() => {}
            () = shutdown.cancelled() => {}
        }
        sleep(GRACE).await;
    };
    tokio::select! {
        () = work => tracing::debug!("the session is over"),
        () = grace_over => tracing::debug!("calls in flight were dropped"),
        () = output.is_broken.cancelled() => tracing::debug!("stdout is closed"),
        () = &mut client_gone => tracing::debug!("the client is gone"),
    }
    session.cancel();
    reader.abort();
}

/// Forwards each message of the input to `rmcp` or the raw calls; answers invalid messages.
async fn read(input: Box<dyn AsyncRead + Send + Unpin>, mut reader: Reader, ended: CancellationToken) {
    let ended = ended.drop_guard();
    let mut lines = Lines::new(BufReader::with_capacity(64 * 1024, input), LINE_LIMIT);
    loop {
        // Calls are polled outside of tokio's budget, so the reader itself has to yield.
        consume_budget().await;
        let accepted = match lines.next().await {
            Ok(Some(Line::Whole(bytes))) => reader.accept_line(&bytes).await,
            Ok(Some(Line::TooLong)) => reader.send_refusal(&Refusal::too_long(LINE_LIMIT)).await,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "cannot read stdin");
                break;
            }
        };
        if accepted.is_err() {
            return;
        }
    }
    drop(ended);
    // Wait for the answers: once `rmcp` knows of the end of input, a call that sends a message before its answer would
    // hang.
    let mut unanswered = reader.output.unanswered.subscribe();
    let _ = unanswered.wait_for(|count| *count == 0).await;
}

/// Dispatches messages to `rmcp` or the raw call handler.
struct Reader {
    output: Output,
    raw_calls: AnyRawCallHandler,
    in_flight: InFlight,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    connection: Connection,
    /// True once `rmcp` accepts messages other than requests.
    is_open: bool,
}

impl Reader {
    /// Dispatches a message, or each message of a batch separately. Fails when the session is over.
    async fn accept_line(&mut self, line: &[u8]) -> io::Result<()> {
        match intake::batch(line).filter(|_| self.output.accepts_batches.load(Ordering::Acquire)) {
            None => self.accept(line).await,
            Some(Err(refused)) => self.send_refusal(&refused).await,
            Some(Ok(parts)) => {
                for part in parts {
                    self.accept(part.get().as_bytes()).await?;
                }
                Ok(())
            }
        }
    }

    async fn accept(&mut self, bytes: &[u8]) -> io::Result<()> {
        // After a failover, another server answers the session's calls, or the client was told that their outcome is
        // unknown.
        if self.connection.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.is_open && start_raw_call(bytes, &self.raw_calls, &self.in_flight, &self.output).await {
            return Ok(());
        }
        let message = match intake::read(bytes) {
            Ok(message) => message,
            Err(refused) => return self.send_refusal(&refused).await,
        };
        // Before the session is open, `rmcp` accepts only requests and would end the session.
        if !self.is_open && !intake::can_open(&message) {
            tracing::debug!("skipped a message before `initialize`");
            return Ok(());
        }
        self.is_open |= intake::opens_session(&message);
        if let ClientJsonRpcMessage::Request(_) = message {
            self.output.unanswered.send_modify(|count| *count += 1);
        }
        self.messages.send(message).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn send_refusal(&self, refused: &Refusal) -> io::Result<()> {
        self.output.write(refused.to_json()).await
    }
}

/// Starts or cancels a raw call without waiting for its answer; returns true if the message was one of these.
async fn start_raw_call(
    bytes: &[u8],
    raw_calls: &AnyRawCallHandler,
    in_flight: &InFlight,
    output: &Output,
) -> bool {
    let (id, call) = match in_flight.classify(bytes, raw_calls) {
        Classified::Other => return false,
        Classified::Cancelled => return true,
        Classified::Call(id, call) => (id, Ok(Either::Left(call))),
        Classified::List(id, list) => (id, Ok(Either::Right(list))),
        Classified::Refused(id, error) => (id, Err(error)),
    };
    output.unanswered.send_modify(|count| *count += 1);
    let (raw_calls, in_flight, output) = (raw_calls.clone(), in_flight.clone(), output.clone());
    let mut answered = Box::pin(async move {
        let (outcome, is_wanted) = match call {
            Ok(call) => {
                let outcome = match call {
                    Either::Left(call) => raw_calls::isolated("tools/call", raw_calls.call(call)).await,
                    Either::Right(list) => raw_calls::isolated("list", raw_calls.list(list)).await,
                };
                (outcome, in_flight.finish(&id))
            }
            Err(error) => (Err(error), true),
        };
        if is_wanted {
            // Ignore the error: if stdout is closed, `is_broken` ends the session.
            let _ = output.write(raw_calls::encode_answer(&id, outcome)).await;
        }
        output.unanswered.send_modify(|count| *count = count.saturating_sub(1));
    });
    // Poll each call once here: most calls only read and complete at once. The others run concurrently with the next
    // messages, and have entered the journal's queue in the client's order, so tokio's budget must not suspend a call
    // before that.
    if poll!(unconstrained(&mut answered)).is_pending() {
        tokio::spawn(answered);
    }
    true
}

/// Writer of stdout, shared by all tasks.
#[derive(Clone)]
struct Output {
    stream: Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>,
    is_broken: CancellationToken,
    /// Number of unanswered requests.
    unanswered: watch::Sender<usize>,
    /// True if the negotiated protocol version has batches.
    accepts_batches: Arc<AtomicBool>,
}

impl Output {
    fn new(stream: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self {
            stream: Arc::new(Mutex::new(stream)),
            is_broken: CancellationToken::new(),
            unanswered: watch::Sender::new(0),
            accepts_batches: Arc::default(),
        }
    }

    /// Writes one JSON object as one line.
    async fn write(&self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        let mut stream = self.stream.lock().await;
        let written = match stream.write_all(&line).await {
            Ok(()) => stream.flush().await,
            Err(error) => Err(error),
        };
        written.inspect_err(|_| self.is_broken.cancel())
    }
}

/// Transport for `rmcp`: lines in, lines out.
struct LineTransport {
    output: Output,
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
}

impl Transport<RoleServer> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let output = self.output.clone();
        if let Some(accepts_batches) = intake::negotiated_version(&message).map(intake::allows_batches) {
            output.accepts_batches.store(accepts_batches, Ordering::Release);
        }
        async move {
            let is_answer =
                matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_));
            let written = output.write(serde_json::to_vec(&message)?).await;
            if is_answer {
                output.unanswered.send_modify(|count| *count = count.saturating_sub(1));
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
