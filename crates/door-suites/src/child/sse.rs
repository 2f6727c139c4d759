//! SSE transport of revision 2024-11-05.
//!
//! The server sends on one event stream and announces an endpoint, to which the client POSTs its messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use switchboard_core::error_chain;

use super::connection::{Connection, EndKind};
use super::error::ChildError;
use super::http::events::{Event, EventParser};
use super::http::{disconnected, read_events, redirected, refused};
use super::net;
use super::shared::{LiveGuard, Shared};
use super::start::{open_session, within_spawn_limit};
use super::transport::{SendFuture, Transport};
use crate::host::Caller;

/// SSE transport; holds the announced POST endpoint.
pub(super) struct SseTransport {
    client: reqwest::Client,
    endpoint: Url,
    headers: HeaderMap,
}

/// Connects to the server and opens a session.
pub(super) async fn start(
    shared: &Arc<Shared>,
    url: &str,
    headers: &BTreeMap<String, String>,
    caller: &Caller,
) -> Result<Arc<Connection>, ChildError> {
    let url = net::check_url(shared, url, &["http", "https"])?;
    let headers = net::headers(shared, headers)?;
    let client = net::client(shared)?;
    let starting = async {
        let (response, events, endpoint) = connect(shared, &client, &url, headers.clone()).await?;
        let transport = Arc::new(SseTransport { client, endpoint, headers });
        let connection = Connection::new(Arc::clone(shared), Transport::Sse(transport), None);
        tokio::spawn(read(response, events, Arc::clone(&connection), shared.track()));
        open_session(connection, caller).await
    };
    within_spawn_limit(shared, Box::pin(starting)).await
}

/// Opens the event stream and waits for the server to announce the endpoint.
async fn connect(
    shared: &Shared,
    client: &reqwest::Client,
    url: &Url,
    mut headers: HeaderMap,
) -> Result<(Response, EventParser, Url), ChildError> {
    let hint = || format!("check `url` and `headers` in {}", shared.file().display());
    let failed = |error: reqwest::Error| shared.cannot_start(error_chain(&error.without_url()), hint());
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let mut response = client.get(url.clone()).headers(headers).send().await.map_err(failed)?;
    if response.status().is_redirection() {
        return Err(shared.cannot_start(redirected(&response), hint()));
    }
    if !response.status().is_success() {
        return Err(shared.cannot_start(format!("it answered with the status {}", response.status()), hint()));
    }
    let mut events = EventParser::new(shared.options.message_cap);
    loop {
        let Some(chunk) = response.chunk().await.map_err(failed)? else {
            return Err(shared.cannot_start("its stream ended before it named an endpoint", hint()));
        };
        events.push(&chunk);
        let too_large = |_| shared.cannot_start("its first event is too large", hint());
        while let Some(Event { event, data }) = events.next().map_err(too_large)? {
            if event == "endpoint" {
                let endpoint = endpoint(url, &data).map_err(|cause| shared.cannot_start(cause, hint()))?;
                return Ok((response, events, endpoint));
            }
        }
    }
}

/// Resolves the announced endpoint and rejects one of a different origin (SSRF).
///
/// Requests may contain secrets, which must not be sent to another origin.
fn endpoint(url: &Url, data: &[u8]) -> Result<Url, String> {
    let text = String::from_utf8_lossy(data);
    let endpoint = url
        .join(text.trim())
        .map_err(|error| format!("the endpoint that it announced is not a valid URL: {error}"))?;
    if endpoint.origin() != url.origin() {
        let (announced, own) = (endpoint.origin().ascii_serialization(), url.origin().ascii_serialization());
        return Err(format!("it names {announced} for messages, which is not {own}"));
    }
    Ok(endpoint)
}

/// Handles the messages of the event stream until the stream ends.
async fn read(response: Response, mut events: EventParser, connection: Arc<Connection>, _living: LiveGuard) {
    let cause = tokio::select! {
        () = connection.ended() => None,
        read = read_events(&connection, response, &mut events, None) => Some(match read {
            Ok(()) => "it ended its stream".to_owned(),
            Err(error) => format!("its stream failed: {error}"),
        }),
    };
    if let Some(cause) = cause {
        connection.end(cause, EndKind::Crash);
    }
}

impl SseTransport {
    /// Posts a message. The answer arrives on the event stream.
    pub(super) fn post(self: &Arc<Self>, connection: &Arc<Connection>, body: Vec<u8>) -> SendFuture {
        let (transport, connection) = (Arc::clone(self), Arc::clone(connection));
        async move {
            let request =
                transport.client.post(transport.endpoint.clone()).headers(transport.headers.clone());
            let request = request.header(CONTENT_TYPE, "application/json").body(body);
            let response = request
                .send()
                .await
                .map_err(|error| disconnected(&connection, error_chain(&error.without_url())))?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status if status.is_redirection() => Err(refused(&connection, status, redirected(&response))),
                status => Err(refused(&connection, status, format!("it answered with the status {status}"))),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
