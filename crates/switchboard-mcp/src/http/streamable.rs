//! Streamable HTTP at `/mcp`, in all protocol versions, with and without sessions.
//!
//! `rmcp` serves the transport. This module adds the checks that `rmcp` lacks (access to a session, the session limit)
//! and clear errors for invalid messages.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::poll;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta, ProtocolVersion};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use switchboard_core::Name;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::admission::Admitted;
use super::error::{HttpError, Rejection, json_response};
use super::sessions::{RawCallRoute, SessionPermit, Sessions};
use super::sse::stream_headers;
use super::{HandlerFactory, batch, deferred_response};
use crate::caller::{Caller, Transport};
use crate::config::HttpConfig;
use crate::intake::{self, Refusal};
use crate::panics::Isolated;
use crate::raw_calls::{self, Classified, RawCallHandler};

const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_HEADER: &str = "mcp-protocol-version";

/// Maximum size of an error text of `rmcp` that is forwarded.
const REFUSAL_LIMIT: usize = 4096;

/// How long a stateless request may take before its response is deferred. Until then, the answer can still determine
/// the status.
const DEFER_AFTER: Duration = Duration::from_secs(1);

/// State of the `/mcp` route.
#[derive(Clone)]
pub(super) struct Streamable {
    service: StreamableHttpService<Isolated, Sessions>,
    sessions: Sessions,
    permits: Arc<Semaphore>,
    max_sessions: usize,
    keep_alive: Duration,
}

impl Streamable {
    pub(super) fn new(
        config: &HttpConfig,
        factory: HandlerFactory,
        sessions: Sessions,
        permits: Arc<Semaphore>,
        closing: CancellationToken,
    ) -> Self {
        // The admission layer has already checked Host, Origin and size; a second check could only contradict it.
        let rmcp = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(config.keep_alive))
            // `rmcp` would prime streams of all protocol versions; `Sessions` primes those of versions that support it.
            .with_sse_retry(None)
            .with_max_request_body_bytes(config.body_limit)
            .with_cancellation_token(closing);
        let service = StreamableHttpService::new(move || Ok(factory()), Arc::new(sessions.clone()), rmcp);
        let (max_sessions, keep_alive) = (config.max_sessions, config.keep_alive);
        Self { service, sessions, permits, max_sessions, keep_alive }
    }

    async fn answer(&self, request: Request) -> Result<Response, Rejection> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| HttpError::BrokenBody)?.to_bytes();
        let session = header_text(&parts.headers, SESSION_HEADER);
        if parts.method == Method::POST
            && let Some(id) = session.filter(|id| self.sessions.accepts_batches(id))
            && let Some(batch) = intake::batch(&body)
        {
            // Check access before the messages, so that a client without access gets a single error and not one per
            // message.
            self.sessions.admit(id, agent_of(&parts).as_ref())?;
            let mut responses = Vec::new();
            for part in batch? {
                let part = Bytes::copy_from_slice(part.get().as_bytes());
                let answer = self.answer_one(parts.clone(), part).await;
                let answer = answer.unwrap_or_else(|Rejection(rejection)| rejection);
                // An error that is not a JSON-RPC error concerns the whole request.
                if is_error(answer.status())
                    && !(answer.status() == StatusCode::BAD_REQUEST && is_json(&answer))
                {
                    return Ok(answer);
                }
                responses.push(answer);
            }
            return Ok(batch::response(responses, DEFER_AFTER).await);
        }
        if parts.method == Method::POST
            && let Some(response) = self.answer_raw_call(&parts, &body).await
        {
            return Ok(response);
        }
        self.answer_one(parts, body).await
    }

    /// Answers a prompt call of a session without `rmcp`. Returns `None` for all other requests, including those that
    /// `rmcp` must reject.
    async fn answer_raw_call(&self, parts: &Parts, body: &Bytes) -> Option<Response> {
        let session =
            header_text(&parts.headers, SESSION_HEADER).filter(|_| allows_raw_calls(&parts.headers))?;
        let RawCallRoute { agent, calls, handler } =
            self.sessions.raw_call_route(session, agent_of(parts).as_ref())?;
        let (id, mut call) = match calls.classify(body, &handler) {
            Classified::Call(id, call) => (id, call),
            Classified::Refused(id, error) => {
                return Some(json_response(StatusCode::OK, raw_calls::encode_answer(&id, Err(error))));
            }
            Classified::Cancelled => return Some(StatusCode::ACCEPTED.into_response()),
            Classified::List(..) | Classified::Other => return None,
        };
        let agent = agent.map(String::from);
        call.caller =
            Caller { transport: Transport::StreamableHttp, session: Some(session.to_owned()), agent };
        let in_use = self.sessions.in_use(session.into());
        let mut answered = Box::pin(async move {
            let outcome = handler.call(call).await;
            drop(in_use);
            if calls.finish(&id) {
                json_response(StatusCode::OK, raw_calls::encode_answer(&id, outcome))
            } else {
                // The client has cancelled the call and expects no answer.
                (stream_headers(), Body::empty()).into_response()
            }
        });
        if let Poll::Ready(response) = poll!(&mut answered) {
            return Some(response);
        }
        // Spawned, so that a call that has started is completed even if its client disconnects.
        let mut answered = tokio::spawn(answered);
        let Ok(finished) = timeout(DEFER_AFTER, &mut answered).await else {
            let answer = async { answered.await.unwrap_or_else(|_| panic_response()) };
            return Some(deferred_response::response(answer, self.keep_alive));
        };
        Some(finished.unwrap_or_else(|_| panic_response()))
    }

    /// Answers a request with at most one message.
    async fn answer_one(&self, mut parts: Parts, body: Bytes) -> Result<Response, Rejection> {
        let agent = agent_of(&parts);
        let message = match parts.method {
            Method::POST => {
                let message = intake::read(&body)?;
                check_version(&message, &parts.headers)?;
                Some(message)
            }
            _ => None,
        };

        let caller = if intake::is_stateless(message.as_ref(), header_text(&parts.headers, VERSION_HEADER)) {
            Caller { transport: Transport::Stateless, session: None, agent: agent.map(String::from) }
        } else if let Some(id) = header_text(&parts.headers, SESSION_HEADER).map(str::to_owned) {
            let agent = self.sessions.admit(&id, agent.as_ref())?;
            if let Some(slot) = self.sessions.handler_slot(&id) {
                parts.extensions.insert(slot);
            }
            let agent = agent.map(String::from);
            Caller { transport: Transport::StreamableHttp, session: Some(id), agent }
        } else {
            let transport = match &message {
                Some(message) if is_initialize(message) => {
                    parts.extensions.insert(self.acquire_session()?);
                    Transport::StreamableHttp
                }
                Some(message) if !is_discover(message) => return Err(no_session(message).into()),
                _ => Transport::Stateless,
            };
            Caller { transport, session: None, agent: agent.map(String::from) }
        };
        let can_be_deferred = parts.method == Method::POST && caller.transport == Transport::Stateless;
        parts.extensions.insert(caller);
        let ends = parts.method == Method::DELETE;
        let request = Request::from_parts(parts, Body::from(body));
        let service = self.service.clone();
        let mut handled = Box::pin(async move { service.handle(request).await.map(Body::new) });
        let mut response = if can_be_deferred {
            match timeout(DEFER_AFTER, &mut handled).await {
                Ok(response) => response,
                Err(_) => return Ok(deferred_response::response(handled, self.keep_alive)),
            }
        } else {
            handled.await
        };
        // This request has ended the session. Some clients treat `rmcp`'s 202 as a failure, so respond with 204.
        if ends && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(response)
    }

    fn acquire_session(&self) -> Result<SessionPermit, HttpError> {
        match self.permits.clone().try_acquire_owned() {
            Ok(acquire_session) => Ok(Arc::new(acquire_session)),
            Err(_) => Err(HttpError::TooManySessions { limit: self.max_sessions }),
        }
    }
}

/// Serves one request.
pub(super) async fn serve(State(streamable): State<Streamable>, request: Request) -> Response {
    match streamable.answer(request).await {
        Ok(response) => with_hint(response).await,
        Err(rejection) => rejection.into_response(),
    }
}

/// Returns true if these headers allow a raw call: `rmcp` would accept a session request with them, and none repeats a
/// field of the body.
fn allows_raw_calls(headers: &HeaderMap) -> bool {
    let accepts = header_text(headers, ACCEPT.as_str())
        .is_some_and(|kinds| kinds.contains("application/json") && kinds.contains("text/event-stream"));
    let version = headers.get(VERSION_HEADER).map(HeaderValue::as_bytes);
    let has_session = |version: &[u8]| {
        let known = ProtocolVersion::KNOWN_VERSIONS.iter().find(|known| known.as_str().as_bytes() == version);
        known.is_some_and(ProtocolVersion::has_initialize)
    };
    let has_other_headers = headers
        .keys()
        .any(|name| name.as_str().starts_with("mcp-") && name != SESSION_HEADER && name != VERSION_HEADER);
    accepts && version.is_none_or(has_session) && !has_other_headers
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the response to a call whose tool panicked.
fn panic_response() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Returns the agent that a request speaks for.
fn agent_of(parts: &Parts) -> Option<Name> {
    parts.extensions.get::<Admitted>().and_then(|admitted| admitted.agent.clone())
}

fn is_initialize(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

/// Returns true for `server/discover`, which is sent before a session exists.
fn is_discover(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}

/// Rejects an unknown protocol version; the error lists the known ones. If the message itself has a version too, `rmcp`
/// compares the two.
fn check_version(message: &ClientJsonRpcMessage, headers: &HeaderMap) -> Result<(), Refusal> {
    let names_one = match message {
        ClientJsonRpcMessage::Request(request) => {
            matches!(request.request, ClientRequest::InitializeRequest(_))
                || request.request.get_meta().protocol_version().is_some()
        }
        _ => false,
    };
    let Some(version) = headers.get(VERSION_HEADER).filter(|_| !names_one) else { return Ok(()) };
    let version = String::from_utf8_lossy(version.as_bytes());
    if ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version) {
        return Ok(());
    }
    let requested = serde_json::from_value(version.into()).unwrap_or(ProtocolVersion::LATEST);
    Err(Refusal::of(
        message,
        ErrorData::unsupported_protocol_version(requested, ProtocolVersion::KNOWN_VERSIONS),
    ))
}

fn no_session(message: &ClientJsonRpcMessage) -> Refusal {
    let problem = "the request has no session; send `initialize` first and then its Mcp-Session-Id, \
                   or name 2026-07-28 in the MCP-Protocol-Version header and in `_meta`";
    Refusal::of(message, ErrorData::invalid_request(problem, None))
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn is_json(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// Converts a plain text error of `rmcp` to our error format.
async fn with_hint(response: Response) -> Response {
    let status = response.status();
    if is_json(&response) || !is_error(status) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let message = match axum::body::to_bytes(body, REFUSAL_LIMIT).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => status.to_string(),
    };
    let mut response = HttpError::Refusal { status, message }.into_response();
    let allowed = parts.headers.get(ALLOW).map(|methods| (ALLOW, methods.clone()));
    response.headers_mut().extend(allowed);
    response
}
