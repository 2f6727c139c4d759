//! Sessions of streamable HTTP, for protocol versions up to 2025-11-25.
//!
//! Each session is a worker of `rmcp`. This session manager adds ids with 128 random bits, the agent of a session, and
//! an idle timeout. `rmcp`'s own manager would end a session after a time without messages, even in the middle of a
//! call that waits; here a session is idle only while none of its responses is open.
//!
//! A priming event, which has an id, a `retry` and empty data, is sent only to sessions of 2025-11-25 or later: clients
//! of older versions fail on the empty data and close the connection.
//!
//! Each response has a channel with a capacity of 16 messages, like `rmcp`'s own. When it is full, only that session
//! blocks; the connection is closed when the client has read nothing for `HttpConfig::write_timeout`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::request::Parts;
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, ProtocolVersion, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionId;
use rmcp::transport::streamable_http_server::session::local::{
    EventIdParseError, LocalSessionHandle, LocalSessionWorker, SessionConfig, SessionError,
    StreamableHttpMessageReceiver, create_local_session,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionManager};
use switchboard_core::Name;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::HttpError;
use super::replay::{CachedEvents, LastEventId, ReplayCache, RequestNumber};
use crate::caller::{Caller, ResponseClosed, Transport};
use crate::intake;
use crate::raw_calls::{HandlerSlot, InFlight, PromptCallHandler};
use crate::token::random_id;

/// Permit of a session, released when the session ends.
pub(super) type SessionPermit = Arc<OwnedSemaphorePermit>;

/// Reconnect delay in the priming event, the same as in `rmcp`.
const RECONNECT_DELAY: Duration = Duration::from_secs(3);

/// Open sessions. Clones share the same map.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions {
    open: Arc<Mutex<HashMap<SessionId, Session>>>,
}

#[derive(Debug)]
struct Session {
    handle: LocalSessionHandle,
    /// Agent of the session. Like the permit, it is set by the first message.
    agent: Option<Name>,
    permit: Option<SessionPermit>,
    /// Raw calls in flight, and the handler for them.
    calls: InFlight,
    handler: HandlerSlot,
    replay_cache: ReplayCache,
    /// Guard that cancels the raw calls when the session ends.
    _ended: DropGuard,
    /// True if the session's protocol version has batches.
    accepts_batches: bool,
    /// True if the session's protocol version has priming events.
    is_primed: bool,
    /// Number of open responses.
    streams: usize,
    /// Time at which the last response ended, or the last request without a response arrived.
    idle_since: Instant,
}

/// Raw call handler of a session, and the state that its calls need.
pub(super) struct RawCallRoute {
    /// Agent of the session.
    pub(super) agent: Option<Name>,
    pub(super) calls: InFlight,
    pub(super) handler: PromptCallHandler,
}

/// Guard that keeps a session from being idle.
#[derive(Debug)]
pub(super) struct InUse {
    sessions: Sessions,
    id: SessionId,
}

/// Error of the session manager.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    #[error("the session has ended; begin a new one")]
    Ended,
    #[error("no session id could be generated")]
    NoId,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("unknown Last-Event-ID: {0}")]
    EventId(#[from] EventIdParseError),
}

impl Sessions {
    /// Checks that `agent` may use the session; returns the session's agent.
    ///
    /// A request that names no agent acts as the session's agent, because it knows the session id.
    pub(super) fn admit(&self, id: &str, agent: Option<&Name>) -> Result<Option<Name>, HttpError> {
        let mut open = self.open.lock();
        let session = open.get_mut(id).ok_or(HttpError::UnknownSession)?;
        if agent.is_some() && agent != session.agent.as_ref() {
            return Err(HttpError::OtherAgent);
        }
        session.idle_since = Instant::now();
        Ok(session.agent.clone())
    }

    /// Returns the raw call handler of the session, if there is one and `agent` may use the session.
    pub(super) fn raw_call_route(&self, id: &str, agent: Option<&Name>) -> Option<RawCallRoute> {
        let mut open = self.open.lock();
        let session =
            open.get_mut(id).filter(|session| agent.is_none() || agent == session.agent.as_ref())?;
        let handler = session.handler.get()?.clone();
        session.idle_since = Instant::now();
        Some(RawCallRoute { agent: session.agent.clone(), calls: session.calls.clone(), handler })
    }

    /// Returns the slot in which the session's handler registers its raw call handler.
    pub(super) fn handler_slot(&self, id: &str) -> Option<HandlerSlot> {
        self.open.lock().get(id).map(|session| session.handler.clone())
    }

    /// Marks the session as in use until the guard is dropped.
    pub(super) fn in_use(&self, id: SessionId) -> InUse {
        if let Some(session) = self.open.lock().get_mut(&id) {
            session.streams += 1;
        }
        InUse { sessions: self.clone(), id }
    }

    /// Returns true if the session's protocol version has batches.
    pub(super) fn accepts_batches(&self, id: &str) -> bool {
        self.open.lock().get(id).is_some_and(|session| session.accepts_batches)
    }

    /// Ends sessions that have no open response and were not used for `limit`.
    pub(super) async fn end_idle(&self, limit: Duration) {
        let is_idle = |session: &Session| session.streams == 0 && session.idle_since.elapsed() >= limit;
        let ended: Vec<_> = self.open.lock().extract_if(|_, session| is_idle(session)).collect();
        for (_, session) in ended {
            tracing::debug!("ended an idle session");
            // Closing fails only if the session has already ended.
            let _ = session.handle.close().await;
        }
    }

    /// Ends all sessions.
    pub(super) async fn end_all(&self) {
        let ended: Vec<_> = self.open.lock().drain().collect();
        for (_, session) in ended {
            let _ = session.handle.close().await;
        }
    }

    fn handle(&self, id: &SessionId) -> Result<LocalSessionHandle, SessionsError> {
        self.open.lock().get(id).map(|session| session.handle.clone()).ok_or(SessionsError::Ended)
    }

    /// Opens a response that streams `messages`. The session counts as in use until the response is dropped.
    fn open_response(
        &self,
        id: &SessionId,
        request: Option<RequestNumber>,
        messages: Messages,
        response_closed: Option<DropGuard>,
    ) -> SessionResponse {
        let in_use = self.in_use(id.clone());
        let (is_primed, replay_cache) = match self.open.lock().get(id) {
            Some(session) => (session.is_primed, session.replay_cache.clone()),
            None => (false, ReplayCache::default()),
        };
        SessionResponse {
            messages: Some(messages),
            is_primed,
            after: None,
            request,
            sent: CachedEvents::default(),
            replay_cache,
            _in_use: in_use,
            _closed: response_closed,
        }
    }
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let id: SessionId = random_id().map_err(|_| SessionsError::NoId)?.into();
        let mut config = SessionConfig::default();
        config.keep_alive = None;
        config.sse_retry = Some(RECONNECT_DELAY);
        let (handle, worker) = create_local_session(id.clone(), config);
        let ended = CancellationToken::new();
        let session = Session {
            handle,
            agent: None,
            permit: None,
            calls: InFlight::until(ended.clone()),
            handler: HandlerSlot::default(),
            replay_cache: ReplayCache::default(),
            _ended: ended.drop_guard(),
            accepts_batches: false,
            is_primed: false,
            streams: 0,
            idle_since: Instant::now(),
        };
        self.open.lock().insert(id.clone(), session);
        Ok((id, WorkerTransport::spawn(worker)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let (caller, permit) = session_opener(&message);
        let agent = caller.and_then(|caller| caller.agent);
        let handle = match self.open.lock().get_mut(id) {
            Some(session) => {
                session.agent = agent.as_deref().and_then(|name| Name::parse(name).ok());
                session.permit = permit;
                session.handle.clone()
            }
            None => return Err(SessionsError::Ended),
        };
        let session = Some(id.to_string());
        message.insert_extension(Caller { transport: Transport::StreamableHttp, session, agent });
        let answer = handle.initialize(message).await?;
        if let Some(session) = self.open.lock().get_mut(id) {
            let version = intake::negotiated_version(&answer);
            session.accepts_batches = version.is_some_and(intake::allows_batches);
            session.is_primed = version.is_some_and(|version| *version >= ProtocolVersion::V_2025_11_25);
        }
        Ok(answer)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.open.lock().contains_key(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let session = self.open.lock().remove(id);
        if let Some(session) = session {
            let _ = session.handle.close().await;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let handle = self.handle(id)?;
        let receiver = handle.establish_request_wise_channel().await?;
        let request = receiver.http_request_id;
        let closed = CancellationToken::new();
        message.insert_extension(ResponseClosed(closed.clone()));
        let response = self.open_response(id, request, receiver.inner, Some(closed.drop_guard()));
        handle.push_message(message, request).await?;
        Ok(response)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        Ok(self.handle(id)?.push_message(message, None).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let receiver = self.handle(id)?.establish_common_channel().await?;
        let stream = self.open_response(id, None, receiver.inner, None);
        let priming = stream.is_primed.then(|| ServerSseMessage::priming("0", RECONNECT_DELAY));
        Ok(futures_util::stream::iter(priming).chain(stream))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let (handle, last) = (self.handle(id)?, LastEventId::parse(&last_event_id));
        let (request, messages) = match (handle.resume(last_event_id.parse()?).await, last) {
            (Ok(StreamableHttpMessageReceiver { http_request_id, inner, .. }), _) => (http_request_id, inner),
            // The call was already answered.
            (Err(error @ SessionError::ChannelClosed(Some(request))), Some(last)) => {
                let cache = self.open.lock().get(id).map(|session| session.replay_cache.clone());
                let replayed = cache.ok_or(SessionsError::Ended)?.replay_after(request, last).await;
                (Some(request), replayed.ok_or(error)?)
            }
            (Err(error), _) => return Err(error.into()),
        };
        let mut response = self.open_response(id, request, messages, None);
        response.after = last;
        Ok(response)
    }
}

/// Returns the caller and the permit that the route stored in the request that opens a session.
fn session_opener(message: &ClientJsonRpcMessage) -> (Option<Caller>, Option<SessionPermit>) {
    let ClientJsonRpcMessage::Request(request) = message else { return (None, None) };
    let parts = request.request.extensions().get::<Parts>();
    let found = |parts: &Parts| (parts.extensions.get().cloned(), parts.extensions.get().cloned());
    parts.map_or((None, None), found)
}

type Messages = Receiver<ServerSseMessage>;

/// Response of a session, as a stream of events.
struct SessionResponse {
    /// Messages still to be sent; `None` after the end of the stream.
    messages: Option<Messages>,
    /// True if priming events, which carry no message, are sent.
    is_primed: bool,
    /// Last event that the client received.
    after: Option<LastEventId>,
    /// Request that the response answers; `None` for the session's own stream.
    request: Option<RequestNumber>,
    sent: CachedEvents,
    replay_cache: ReplayCache,
    _in_use: InUse,
    /// Guard that fires the request's [`ResponseClosed`] token when dropped.
    _closed: Option<DropGuard>,
}

impl Stream for SessionResponse {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
            let Some(event) = ready!(messages.poll_recv(context)) else {
                self.messages = None;
                return Poll::Ready(None);
            };
            let is_known = self.after.is_some_and(|last| !last.precedes(&event));
            if is_known || (event.message.is_none() && !self.is_primed) {
                continue;
            }
            if self.request.is_some() {
                self.sent.push(event.clone());
            }
            return Poll::Ready(Some(event));
        }
    }
}

impl Drop for SessionResponse {
    fn drop(&mut self) {
        // The response was closed before its end, so cache the rest for a client that resumes.
        if let (Some(request), Some(rest)) = (self.request, self.messages.take()) {
            self.replay_cache.cache_response(request, std::mem::take(&mut self.sent), rest);
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.open.lock().get_mut(&self.id) {
            session.streams -= 1;
            session.idle_since = Instant::now();
        }
    }
}
