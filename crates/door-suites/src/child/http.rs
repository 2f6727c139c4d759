//! Streamable HTTP, in both eras: with sessions up to 2025-11-25, without them from 2026-07-28.
//!
//! Each message is a post. The answer is JSON or a stream of events, on which the child may say more before it
//! answers; what it says outside any call comes on a stream of its own ([`streams`]).

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
use tokio::time::{sleep, timeout};

use self::events::Events;
use self::mirror::Mirror;
use super::connection::{Connection, EndKind};
use super::envelope::Incoming;
use super::error::ChildError;
use super::meta::{MODERN, Meta};
use super::net;
use super::opening;
use super::shared::{Living, Shared};
use super::sse;
use super::start::{Unopened, as_start_error, spawn_timeout};
use super::transport::{Carrying, Outgoing, Transport};
use crate::error::chain;
use crate::host::Caller;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How often a stream that broke off before the answer is taken up again.
const RESUMPTIONS: u32 = 10;

/// How long to wait before that, where the server does not say.
const RETRY: Duration = Duration::from_millis(500);

/// The longest wait that a server can ask for.
const RETRY_MOST: Duration = Duration::from_secs(30);

/// How long a server may take to take note of the end of a session.
const FAREWELL: Duration = Duration::from_secs(1);

/// How much of an error page is quoted.
const QUOTE: usize = 200;

/// The way to an HTTP server.
pub(super) struct HttpTransport {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    session: Mutex<Option<HeaderValue>>,
    mirror: Mirror,
    /// The status of the last refusal.
    refusal: Mutex<Option<StatusCode>>,
}

/// Connects and opens: without a session if the server knows how, and with one otherwise.
pub(super) async fn start(
    shared: &Arc<Shared>,
    url: &str,
    headers: &BTreeMap<String, String>,
    caller: &Caller,
) -> Result<Arc<Connection>, ChildError> {
    let link = Arc::new(HttpTransport {
        client: net::client(shared)?,
        url: net::check_url(shared, url, &["http", "https"])?,
        headers: net::headers(shared, headers)?,
        session: Mutex::default(),
        mirror: Mirror::default(),
        refusal: Mutex::default(),
    });
    let connection = Connection::new(Arc::clone(shared), Transport::Http(Arc::clone(&link)), None);
    tokio::spawn(Arc::clone(&link).say_farewell(Arc::clone(&connection), shared.lives()));
    let starting = Unopened::new(&connection);
    let limit = shared.spec.limits.spawn;
    let opening = async {
        match opening::discover(&connection, caller, limit / 2).await {
            // It names the revision as one that it knows, so that once more is worth the while.
            Err(ChildError::Rpc(error)) if opening::offers_modern(&error) => {
                opening::discover(&connection, caller, limit).await
            }
            // Whatever an older server makes of the question, it is then asked in the older way. Not so when
            // nobody is there at all.
            Err(_) if connection.ending().is_none() => opening::initialize(&connection, caller, limit).await,
            opened => opened,
        }
    };
    let opened = timeout(limit, opening).await.unwrap_or_else(|_| Err(spawn_timeout(shared, limit)));
    if let Err(error) = opened {
        // A server of 2024 takes no posts at this address, but has a stream there.
        let is_old = link.refusal.lock().is_some_and(|status| {
            matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
        });
        let older = if is_old { sse::start(shared, url, headers, caller).await.ok() } else { None };
        return older.ok_or_else(|| as_start_error(shared, error, limit));
    }
    starting.opened();
    match connection.meta() {
        Meta::Legacy => tokio::spawn(streams::listen_in_session(link, Arc::clone(&connection))),
        Meta::Modern => tokio::spawn(streams::subscribe(link, Arc::clone(&connection))),
    };
    Ok(connection)
}

/// How a post went on.
enum Reply {
    /// There is nothing to read.
    Nothing,
    /// One message.
    Message(Response),
    /// A stream of them.
    Stream(Response),
}

impl HttpTransport {
    /// Learns from a list of tools what has to be in the headers of calls; returns the list without the tools that
    /// cannot be called, if there are any.
    pub(super) fn learn(&self, list: &RawValue) -> Option<Box<RawValue>> {
        self.mirror.learn(list)
    }

    /// Whether a tool cannot be called because of what it wants to see in headers.
    pub(super) fn refuses(&self, tool: &str) -> bool {
        self.mirror.refuses(tool)
    }

    /// Posts a message, and takes in what comes back for as long as something comes.
    pub(super) fn carry(self: &Arc<Self>, connection: &Arc<Connection>, message: Outgoing<'_>) -> Carrying {
        let is_modern = connection.meta() == Meta::Modern || message.method == "server/discover";
        // Without a session, a call is called off by letting go of its answer.
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
        let (link, connection) = (Arc::clone(self), Arc::clone(connection));
        let (id, body) = (message.id, message.body);
        let is_initialize = message.method == "initialize";
        async move {
            let response = link.send(&connection, Method::POST, headers, body).await?;
            if is_initialize && let Some(session) = response.headers().get(&SESSION) {
                *link.session.lock() = Some(session.clone());
            }
            match link.check(&connection, response).await? {
                Reply::Nothing if id.is_none() => Ok(()),
                Reply::Nothing => Err(gone(&connection, "it took the request and answered nothing")),
                Reply::Message(response) => {
                    let body = read_all(&connection, response).await?;
                    if connection.take_in(body.trim_ascii(), id) || id.is_none() {
                        return Ok(());
                    }
                    Err(gone(&connection, "its answer is not JSON-RPC"))
                }
                Reply::Stream(response) => link.read_answer(&connection, response, id, is_modern).await,
            }
        }
        .boxed()
    }

    /// Reads the stream of an answer. Where the stream breaks off, and had marks, it is taken up again.
    async fn read_answer(
        &self,
        connection: &Arc<Connection>,
        response: Response,
        id: Option<u64>,
        is_modern: bool,
    ) -> Result<(), ChildError> {
        let mut events = Events::new(connection.shared.options.message_cap);
        let mut broken = read_events(connection, response, &mut events, id).await;
        for _ in 0..RESUMPTIONS {
            if !connection.awaits(id) {
                return Ok(());
            }
            let Some(last) = events.last_id.clone().filter(|_| !is_modern) else { break };
            sleep(retry(&events)).await;
            let Ok(response) = self.get(connection, Some(&last)).await else { continue };
            let mut resumed = Events::new(connection.shared.options.message_cap);
            (resumed.last_id, resumed.retry) = (Some(last), events.retry);
            broken = read_events(connection, response, &mut resumed, id).await;
            events = resumed;
        }
        broken?;
        Err(gone(connection, "it ended the stream before it answered"))
    }

    /// Asks for a stream of events; `last` is where an earlier one broke off.
    async fn get(&self, connection: &Arc<Connection>, last: Option<&str>) -> Result<Response, ChildError> {
        let mut headers = self.common(connection, false);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            headers.insert(LAST_EVENT, last);
        }
        let response = self.send(connection, Method::GET, headers, Vec::new()).await?;
        match self.check(connection, response).await? {
            Reply::Stream(response) => Ok(response),
            Reply::Nothing | Reply::Message(_) => Err(gone(connection, "it offers no stream")),
        }
    }

    /// The headers of every request.
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
            // The address may hold a key: it stays out of what is told.
            let cause = chain(&error.without_url());
            if is_unreachable {
                connection.end(format!("it cannot be reached: {cause}"), EndKind::Crash);
            }
            gone(connection, cause)
        })
    }

    /// What kind of reply it is; an error for every one that says no.
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
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; it wants other `headers` in its file",
            _ => "",
        };
        let said = if quote.is_empty() { String::new() } else { format!(": {quote}") };
        refused(connection, status, format!("it answered with the status {status}{said}{advice}"))
    }

    /// Ends the session at the end.
    async fn say_farewell(self: Arc<Self>, connection: Arc<Connection>, _living: Living) {
        connection.ended().await;
        if self.session.lock().is_some() {
            let headers = self.common(&connection, false);
            let request = self.client.delete(self.url.clone()).headers(headers).send();
            // A server that does not care for the end of a session forgets it by itself.
            let _ = timeout(FAREWELL, request).await;
        }
    }
}

/// Takes in the messages of a stream until it ends.
pub(super) async fn read_events(
    connection: &Arc<Connection>,
    mut response: Response,
    events: &mut Events,
    via: Option<u64>,
) -> Result<(), ChildError> {
    loop {
        // What came with the opening of the stream is there already.
        loop {
            let event = events.next().map_err(|_| {
                connection.end(too_large(connection), EndKind::Fault);
                gone(connection, too_large(connection))
            })?;
            let Some(event) = event else { break };
            if matches!(event.event.as_str(), "" | "message") && !event.data.trim_ascii().is_empty() {
                connection.take_in(event.data.trim_ascii(), via);
            }
        }
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|error| gone(connection, chain(&error.without_url())))? else {
            return Ok(());
        };
        events.push(&chunk);
    }
}

async fn read_all(connection: &Connection, mut response: Response) -> Result<Vec<u8>, ChildError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| gone(connection, chain(&error.without_url())))?
    {
        if body.len() + chunk.len() > connection.shared.options.message_cap {
            return Err(gone(connection, too_large(connection)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// How long to wait before a stream is taken up again.
pub(super) fn retry(events: &Events) -> Duration {
    events.retry.map_or(RETRY, Duration::from_millis).min(RETRY_MOST)
}

/// What is told of a redirect, which is never followed.
pub(super) fn redirected(response: &Response) -> String {
    let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
    let to: String = to.chars().take(QUOTE).collect();
    format!("it redirects to {to}, and redirects are not followed; if that is where it is, write it in `url`")
}

pub(super) fn too_large(connection: &Connection) -> String {
    format!("it sent a message of more than {} bytes", connection.shared.options.message_cap)
}

pub(super) fn refused(connection: &Connection, status: StatusCode, cause: impl Into<String>) -> ChildError {
    ChildError::Refused {
        child: connection.shared.name().to_owned(),
        cause: connection.shared.log.clean(&cause.into()),
        // Who stumbles may have done it before; who refuses has not.
        is_outcome_unknown: status.is_server_error(),
    }
}

pub(super) fn gone(connection: &Connection, cause: impl Into<String>) -> ChildError {
    ChildError::Gone {
        child: connection.shared.name().to_owned(),
        cause: connection.shared.log.clean(&cause.into()),
        said: String::new(),
    }
}
