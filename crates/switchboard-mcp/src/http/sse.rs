//! The HTTP+SSE transport of 2024-11-05 at `/sse` and `/messages`, which the workspace protocol requires.
//!
//! A client opens a stream, whose first event names the endpoint for messages. It posts messages to that endpoint and
//! reads the answers on the stream. A session lives exactly as long as its stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::serve_server_with_ct;
use rmcp::transport::Transport as RmcpTransport;
use switchboard_core::Name;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use super::HandlerFactory;
use super::admission::{Admitted, MESSAGES, SseQuery};
use super::error::{HttpError, Rejection};
use crate::caller::{Caller, Transport};
use crate::intake::{self, Refusal};
use crate::token::{Token, random_id};

/// Capacity of the queue of messages for the handler. A message beyond it gets a 429 response.
const INBOUND_QUEUE: usize = 64;

/// Capacity of the queue of messages for the client. When it is full, only this session blocks; a client that reads
/// nothing for `HttpConfig::write_timeout` is disconnected.
const OUTBOUND_QUEUE: usize = 64;

/// Keep-alive comment, which clients ignore.
pub(super) const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// State of the routes `/sse` and `/messages`.
#[derive(Clone)]
pub(super) struct Sse {
    pub(super) factory: HandlerFactory,
    pub(super) streams: Streams,
    pub(super) permits: Arc<Semaphore>,
    pub(super) max_sessions: usize,
    pub(super) keep_alive: Duration,
    pub(super) token: Token,
    pub(super) closing: CancellationToken,
}

/// Open streams. Clones share the same map.
#[derive(Clone, Default)]
pub(super) struct Streams {
    open: Arc<Mutex<HashMap<String, OpenStream>>>,
}

/// An open stream.
#[derive(Clone)]
struct OpenStream {
    agent: Option<Name>,
    /// Queue of messages to the handler.
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    /// Queue of messages to the client.
    answers: mpsc::Sender<Vec<u8>>,
    /// True once `rmcp` accepts messages other than requests.
    is_open: Arc<AtomicBool>,
    /// True if the negotiated protocol version has batches.
    accepts_batches: Arc<AtomicBool>,
}

/// Serves `GET /sse`: opens a session.
pub(super) async fn open(
    State(sse): State<Sse>,
    Extension(admitted): Extension<Admitted>,
) -> Result<Response, Rejection> {
    let permit = sse
        .permits
        .clone()
        .try_acquire_owned()
        .map_err(|_| HttpError::TooManySessions { limit: sse.max_sessions })?;
    let id = random_id().map_err(|_| HttpError::NoSession)?;
    let session = sse.closing.child_token();
    let (messages, to_handler) = mpsc::channel(INBOUND_QUEUE);
    let (answers, to_client) = mpsc::channel(OUTBOUND_QUEUE);

    // A client that cannot send a header has the token in its URL, so the endpoint URL must contain the token too.
    let mut address = format!("{MESSAGES}?sessionId={id}");
    if admitted.has_query_token {
        address = format!("{address}&token={}", sse.token.reveal());
    }
    let endpoint = format!("event: endpoint\ndata: {address}\n\n");
    let accepts_batches = Arc::<AtomicBool>::default();
    let transport = PostTransport {
        messages: to_handler,
        answers: answers.clone(),
        accepts_batches: accepts_batches.clone(),
    };
    let stream =
        OpenStream { agent: admitted.agent, messages, answers, is_open: Arc::default(), accepts_batches };
    sse.streams.open.lock().insert(id.clone(), stream);

    let handler = (sse.factory)();
    tokio::spawn({
        let session = session.clone();
        async move {
            match serve_server_with_ct(handler, transport, session.clone()).await {
                Ok(running) => drop(running.waiting().await),
                Err(error) => tracing::debug!(%error, "an SSE session ended before it was initialized"),
            }
            session.cancel();
        }
    });
    let mut keep_alive = interval_at(Instant::now() + sse.keep_alive, sse.keep_alive);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = EventStream {
        first: Some(endpoint),
        answers: to_client,
        keep_alive,
        ended: Box::pin(session.clone().cancelled_owned()),
        _guard: SessionGuard {
            streams: sse.streams.clone(),
            id,
            _session: session.drop_guard(),
            _permit: permit,
        },
    };
    Ok((stream_headers(), Body::from_stream(events)).into_response())
}

/// Returns the headers of an event stream, which forbid proxies to cache or buffer it.
pub(super) fn stream_headers() -> [(HeaderName, HeaderValue); 3] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ]
}

/// Serves `POST /messages?sessionId=…`: enqueues a message for a session, which answers on its stream.
pub(super) async fn post(
    State(sse): State<Sse>,
    Extension(admitted): Extension<Admitted>,
    request: Request,
) -> Result<Response, Rejection> {
    let id = SseQuery::parse(request.uri())?.session_id.ok_or(HttpError::NoSessionId)?;
    let stream = sse.streams.admit(&id, admitted.agent.as_ref())?;
    let body = request.into_body().collect().await.map_err(|_| HttpError::BrokenBody)?.to_bytes();
    let accepts_batches = stream.accepts_batches.load(Ordering::Acquire);
    match intake::batch(&body).filter(|_| accepts_batches) {
        None => match intake::read(&body) {
            // Invalid params are answered on the stream, like all requests.
            Err(refused) if !refused.is_about_params() => return Err(refused.into()),
            read => stream.enqueue(vec![read], &id)?,
        },
        Some(batch) => {
            stream.enqueue(batch?.iter().map(|part| intake::read(part.get().as_bytes())).collect(), &id)?;
        }
    }
    Ok(accepted_response())
}

impl OpenStream {
    /// Enqueues all messages or none, because a client that gets a 429 response sends all of them again. Invalid
    /// messages are answered on the stream.
    fn enqueue(&self, read: Vec<Result<ClientJsonRpcMessage, Refusal>>, id: &str) -> Result<(), HttpError> {
        let is_open = self.is_open.load(Ordering::Acquire);
        let mut opens = false;
        let (mut messages, mut refusals) = (Vec::new(), Vec::new());
        for message in read {
            match message {
                Ok(message) if !is_open && !intake::can_open(&message) => {}
                Ok(mut message) => {
                    opens |= intake::opens_session(&message);
                    let (session, agent) = (Some(id.to_owned()), self.agent.clone().map(String::from));
                    message.insert_extension(Caller { transport: Transport::Sse, session, agent });
                    messages.push(message);
                }
                Err(refused) => refusals.push(refused.to_json()),
            }
        }
        let room_in = self.messages.try_reserve_many(messages.len()).map_err(queue_error)?;
        let room_out = self.answers.try_reserve_many(refusals.len()).map_err(queue_error)?;
        room_in.zip(messages).for_each(|(permit, message)| permit.send(message));
        room_out.zip(refusals).for_each(|(permit, refusal)| permit.send(refusal));
        if opens {
            self.is_open.store(true, Ordering::Release);
        }
        Ok(())
    }
}

fn queue_error(error: TrySendError<()>) -> HttpError {
    match error {
        TrySendError::Full(()) => HttpError::SessionBusy,
        TrySendError::Closed(()) => HttpError::UnknownSession,
    }
}

impl Streams {
    fn admit(&self, id: &str, agent: Option<&Name>) -> Result<OpenStream, HttpError> {
        let open = self.open.lock();
        let stream = open.get(id).ok_or(HttpError::UnknownSession)?;
        if agent.is_some() && agent != stream.agent.as_ref() {
            return Err(HttpError::OtherAgent);
        }
        Ok(stream.clone())
    }
}

fn accepted_response() -> Response {
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

/// Transport for `rmcp`: posted messages in, events out.
struct PostTransport {
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
    answers: mpsc::Sender<Vec<u8>>,
    accepts_batches: Arc<AtomicBool>,
}

/// Reason why an answer was not sent.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("the client has closed its stream")]
    Closed,
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl RmcpTransport<RoleServer> for PostTransport {
    type Error = PostError;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answers = self.answers.clone();
        if let Some(accepts_batches) = intake::negotiated_version(&message).map(intake::allows_batches) {
            self.accepts_batches.store(accepts_batches, Ordering::Release);
        }
        async move { answers.send(serde_json::to_vec(&message)?).await.map_err(|_| PostError::Closed) }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Response body of `GET /sse`: the event stream.
struct EventStream {
    first: Option<String>,
    answers: mpsc::Receiver<Vec<u8>>,
    keep_alive: Interval,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    _guard: SessionGuard,
}

impl Stream for EventStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first.into())));
        }
        match self.answers.poll_recv(context) {
            Poll::Ready(Some(json)) => {
                self.keep_alive.reset();
                return Poll::Ready(Some(Ok(event(&json))));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        ready!(self.keep_alive.poll_tick(context));
        Poll::Ready(Some(Ok(KEEP_ALIVE_COMMENT)))
    }
}

/// Formats a message as an event. Our JSON contains no line breaks, so the event has a single `data` line.
pub(super) fn event(json: &[u8]) -> Bytes {
    [b"event: message\ndata: ".as_slice(), json, b"\n\n"].concat().into()
}

/// Guard that ends the session with its stream: removes it, cancels its calls and releases its permit.
struct SessionGuard {
    streams: Streams,
    id: String,
    _session: DropGuard,
    _permit: OwnedSemaphorePermit,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.streams.open.lock().remove(&self.id);
    }
}
