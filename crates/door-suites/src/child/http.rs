//! Streamable HTTP transport: with sessions up to 2025-11-25, without sessions from 2026-07-28.
//!
//! Each message is sent as a POST. The response is JSON or an event stream, on which the child may send further
//! messages before the answer. Messages outside any call arrive on a separate stream ([`streams`]).

pub(super) mod events;
mod mirror;
mod name;
mod streams;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use reqwest::{Response, Url};
use serde_json::value::RawValue;
use switchboard_core::error_chain;
use tokio::time::{sleep, timeout};

use self::events::EventParser;
use self::mirror::HeaderMirror;
use super::connection::{Connection, EndKind};
use super::envelope::Incoming;
use super::error::ChildError;
use super::handshake;
use super::meta::{MODERN, Meta};
use super::net;
use super::shared::{LiveGuard, Shared};
use super::sse;
use super::start::{OpeningGuard, as_start_error, within_spawn_limit};
use super::transport::{Outgoing, SendFuture, Transport};
use crate::host::Caller;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Maximum number of attempts to resume a stream that broke before the answer.
const RESUMPTIONS: u32 = 10;

/// Default delay before resuming a stream.
const RETRY: Duration = Duration::from_millis(500);

/// Maximum delay before resuming a stream, even if the server requests more.
const RETRY_MOST: Duration = Duration::from_secs(30);

/// Maximum wait for the server to acknowledge the end of a session.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum length of a quoted error page, in characters.
const QUOTE: usize = 200;

/// Streamable HTTP transport to one server.
pub(super) struct HttpTransport {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    session: Mutex<Option<HeaderValue>>,
    mirror: HeaderMirror,
    /// HTTP status with which the server last rejected a request.
    refusal: Mutex<Option<StatusCode>>,
}

/// Connects to the server and performs the handshake, without a session if the server supports that.
pub(super) async fn start(
    shared: &Arc<Shared>,
    url: &str,
    headers: &BTreeMap<String, String>,
    caller: &Caller,
) -> Result<Arc<Connection>, ChildError> {
    let transport = Arc::new(HttpTransport {
        client: net::client(shared)?,
        url: net::check_url(shared, url, &["http", "https"])?,
        headers: net::headers(shared, headers)?,
        session: Mutex::default(),
        mirror: HeaderMirror::default(),
        refusal: Mutex::default(),
    });
    let connection = Connection::new(Arc::clone(shared), Transport::Http(Arc::clone(&transport)), None);
    tokio::spawn(Arc::clone(&transport).end_session(Arc::clone(&connection), shared.track()));
    let starting = OpeningGuard::new(&connection);
    let limit = shared.spec.limits.spawn;
    let opening = async {
        match handshake::discover(&connection, caller, limit / 2).await {
            // Retry once, because the server lists the revision as supported.
            Err(ChildError::Rpc(error)) if handshake::offers_modern(&error) => {
                handshake::discover(&connection, caller, limit).await
            }
            // Older servers reject `server/discover` in various ways. Fall back to `initialize`, unless the server is
            // unreachable.
            Err(_) if connection.ending().is_none() => {
                handshake::initialize(&connection, caller, limit).await
            }
            opened => opened,
        }
    };
    let opened = within_spawn_limit(shared, opening).await;
    if let Err(error) = opened {
        // A server of revision 2024-11-05 rejects POSTs at this URL but serves an SSE stream there.
        let is_old_server = transport.refusal.lock().is_some_and(|status| {
            matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
        });
        let older = if is_old_server { sse::start(shared, url, headers, caller).await.ok() } else { None };
        return older.ok_or_else(|| as_start_error(shared, error, limit));
    }
    starting.complete();
    match connection.meta() {
        Meta::Legacy => tokio::spawn(streams::listen_in_session(transport, Arc::clone(&connection))),
        Meta::Modern => tokio::spawn(streams::subscribe(transport, Arc::clone(&connection))),
    };
    Ok(connection)
}

/// Kind of response to a POST.
enum Reply {
    /// The response has no content.
    Nothing,
    /// The response contains a single message.
    Message(Response),
    /// The response is a stream of messages.
    Stream(Response),
}

impl HttpTransport {
    /// Records which arguments of each listed tool must be mirrored into headers.
    ///
    /// Returns the list without invalid tools if there are any, or else `None`.
    pub(super) fn record_tools(&self, list: &RawValue) -> Option<Box<RawValue>> {
        self.mirror.record_tools(list)
    }

    /// Returns true if a tool cannot be called because its header annotations are invalid.
    pub(super) fn is_invalid(&self, tool: &str) -> bool {
        self.mirror.is_invalid(tool)
    }

    /// Posts a message and handles all messages that the response contains.
    pub(super) fn post(self: &Arc<Self>, connection: &Arc<Connection>, message: Outgoing<'_>) -> SendFuture {
        let is_modern = connection.meta() == Meta::Modern || message.method == "server/discover";
        // Without a session, closing the response cancels the call, so no notification is sent.
        if is_modern && message.method == "notifications/cancelled" {
            return std::future::ready(Ok(())).boxed();
        }
        let mut headers = self.common(connection, is_modern);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if is_modern {
            headers.extend(name::headers(message.method, message.params));
            if message.method == "tools/call" {
                headers.extend(self.mirror.headers(message.params));
            }
        }
        let (transport, connection) = (Arc::clone(self), Arc::clone(connection));
        let (id, body) = (message.id, message.body);
        let is_initialize = message.method == "initialize";
        async move {
            let response = transport.send(&connection, Method::POST, headers, body).await?;
            if is_initialize && let Some(session) = response.headers().get(&SESSION) {
                *transport.session.lock() = Some(session.clone());
            }
            match transport.check(&connection, response).await? {
                Reply::Nothing if id.is_none() => Ok(()),
                Reply::Nothing => {
                    Err(disconnected(&connection, "it accepted the request and sent no answer"))
                }
                Reply::Message(response) => {
                    let body = read_all(&connection, response).await?;
                    if connection.receive(body.trim_ascii(), id) || id.is_none() {
                        return Ok(());
                    }
                    Err(disconnected(&connection, "its answer is not JSON-RPC"))
                }
                Reply::Stream(response) => transport.read_answer(&connection, response, id, is_modern).await,
            }
        }
        .boxed()
    }

    /// Reads the response stream of a request. Resumes a broken stream if its events had ids.
    async fn read_answer(
        &self,
        connection: &Arc<Connection>,
        response: Response,
        id: Option<u64>,
        is_modern: bool,
    ) -> Result<(), ChildError> {
        let mut events = EventParser::new(connection.shared.options.message_cap);
        let mut broken = read_events(connection, response, &mut events, id).await;
        for _ in 0..RESUMPTIONS {
            if !connection.awaits(id) {
                return Ok(());
            }
            let Some(last) = events.last_id.clone().filter(|_| !is_modern) else { break };
            sleep(retry(&events)).await;
            let Ok(response) = self.get(connection, Some(&last)).await else { continue };
            let mut resumed = EventParser::new(connection.shared.options.message_cap);
            (resumed.last_id, resumed.retry) = (Some(last), events.retry);
            broken = read_events(connection, response, &mut resumed, id).await;
            events = resumed;
        }
        broken?;
        Err(disconnected(connection, "it ended the stream before it answered"))
    }

    /// Opens an event stream with GET. `last` is the last event id of a broken stream to resume.
    async fn get(&self, connection: &Arc<Connection>, last: Option<&str>) -> Result<Response, ChildError> {
        let mut headers = self.common(connection, false);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            headers.insert(LAST_EVENT, last);
        }
        let response = self.send(connection, Method::GET, headers, Vec::new()).await?;
        match self.check(connection, response).await? {
            Reply::Stream(response) => Ok(response),
            Reply::Nothing | Reply::Message(_) => Err(disconnected(connection, "it offers no stream")),
        }
    }

    /// Returns the headers that are common to all requests.
    fn common(&self, connection: &Connection, is_modern: bool) -> HeaderMap {
        let mut headers = self.headers.clone();
        if is_modern {
            headers.insert(VERSION, HeaderValue::from_static(MODERN));
            return headers;
        }
        if let Some(session) = self.session.lock().clone() {
            headers.insert(SESSION, session);
        }
        let version = connection.initialized().map(|opened| HeaderValue::from_str(&opened.protocol_version));
        if let Some(Ok(version)) = version {
            headers.insert(VERSION, version);
        }
        headers
    }

    async fn send(
        &self,
        connection: &Connection,
        method: Method,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response, ChildError> {
        let request = self.client.request(method, self.url.clone()).headers(headers).body(body);
        request.send().await.map_err(|error| {
            let is_unreachable = error.is_connect();
            // The URL may contain a key, so it is removed from errors.
            let cause = error_chain(&error.without_url());
            if is_unreachable {
                connection.end(format!("it cannot be reached: {cause}"), EndKind::Crash);
            }
            disconnected(connection, cause)
        })
    }

    /// Classifies a response by its status and content type. Rejections become errors.
    async fn check(&self, connection: &Connection, response: Response) -> Result<Reply, ChildError> {
        let status = response.status();
        if status.is_redirection() {
            return Err(refused(connection, status, redirected(&response)));
        }
        if !status.is_success() {
            return Err(self.refused(connection, response).await);
        }
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Ok(match kind.as_str() {
            _ if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) => Reply::Nothing,
            "text/event-stream" => Reply::Stream(response),
            _ => Reply::Message(response),
        })
    }

    async fn refused(&self, connection: &Connection, response: Response) -> ChildError {
        let status = response.status();
        *self.refusal.lock() = Some(status);
        let had_session = self.session.lock().is_some() && connection.initialized().is_some();
        let body = read_all(connection, response).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let is_about_session = status == StatusCode::NOT_FOUND
            || (status == StatusCode::BAD_REQUEST && text.to_ascii_lowercase().contains("session"));
        if had_session && is_about_session {
            return ChildError::SessionEnded { child: connection.shared.name().to_owned() };
        }
        if let Some(Incoming::Answer { outcome: Err(error), .. }) = Incoming::parse(body.trim_ascii()) {
            return ChildError::Rpc(error);
        }
        let quote: String = text.trim().chars().take(QUOTE).collect();
        let advice = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; set its `headers` in its file",
            _ => "",
        };
        let detail = if quote.is_empty() { String::new() } else { format!(": {quote}") };
        refused(connection, status, format!("it answered with the status {status}{detail}{advice}"))
    }

    /// Waits for the end of the connection, and then ends the HTTP session with DELETE.
    async fn end_session(self: Arc<Self>, connection: Arc<Connection>, _living: LiveGuard) {
        connection.ended().await;
        if self.session.lock().is_some() {
            let headers = self.common(&connection, false);
            let request = self.client.delete(self.url.clone()).headers(headers).send();
            // If the server ignores the request, the session expires by itself.
            let _ = timeout(SESSION_END_TIMEOUT, request).await;
        }
    }
}

/// Handles the messages of an event stream until the stream ends.
pub(super) async fn read_events(
    connection: &Arc<Connection>,
    mut response: Response,
    events: &mut EventParser,
    via: Option<u64>,
) -> Result<(), ChildError> {
    loop {
        // Handle all buffered events first, including those from an earlier chunk.
        loop {
            let event = events.next().map_err(|_| {
                connection.end(too_large(connection), EndKind::Fault);
                disconnected(connection, too_large(connection))
            })?;
            let Some(event) = event else { break };
            if matches!(event.event.as_str(), "" | "message") && !event.data.trim_ascii().is_empty() {
                connection.receive(event.data.trim_ascii(), via);
            }
        }
        let chunk = response.chunk().await;
        let Some(chunk) =
            chunk.map_err(|error| disconnected(connection, error_chain(&error.without_url())))?
        else {
            return Ok(());
        };
        events.push(&chunk);
    }
}

async fn read_all(connection: &Connection, mut response: Response) -> Result<Vec<u8>, ChildError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| disconnected(connection, error_chain(&error.without_url())))?
    {
        if body.len() + chunk.len() > connection.shared.options.message_cap {
            return Err(disconnected(connection, too_large(connection)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the delay before resuming a stream, as requested by the server.
pub(super) fn retry(events: &EventParser) -> Duration {
    events.retry.map_or(RETRY, Duration::from_millis).min(RETRY_MOST)
}

/// Describes a redirect for an error message; redirects are never followed.
pub(super) fn redirected(response: &Response) -> String {
    let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
    let to: String = to.chars().take(QUOTE).collect();
    format!(
        "it redirects to {to}, and redirects are not followed; if that address is correct, set `url` to it"
    )
}

pub(super) fn too_large(connection: &Connection) -> String {
    format!("it sent a message of more than {} bytes", connection.shared.options.message_cap)
}

pub(super) fn refused(connection: &Connection, status: StatusCode, cause: impl Into<String>) -> ChildError {
    ChildError::Refused {
        child: connection.shared.name().to_owned(),
        cause: connection.shared.log.clean(&cause.into()),
        // A 5xx error may occur after the call took effect, whereas a 4xx rejection occurs before.
        is_outcome_unknown: status.is_server_error(),
    }
}

pub(super) fn disconnected(connection: &Connection, cause: impl Into<String>) -> ChildError {
    ChildError::Disconnected {
        child: connection.shared.name().to_owned(),
        cause: connection.shared.log.clean(&cause.into()),
        last_line: String::new(),
    }
}
