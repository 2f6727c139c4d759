//! Admission checks that each request passes before it is routed.
//!
//! In this order: `Host` (DNS rebinding), `Origin` (cross-site requests), token, agent name, content type, and a body
//! of bounded size within a timeout.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use switchboard_core::Name;
use tokio::time::timeout;

use super::auth_rate_limit::AuthRateLimit;
use super::error::HttpError;
use crate::caller::AGENT_HEADER;
use crate::config::HttpConfig;
use crate::error::McpError;
use crate::token::Token;

/// Path of the health endpoint, which requires no token.
pub(super) const HEALTH: &str = "/health";
/// Path of the event stream of the older transport; [`MESSAGES`] is the path for its messages. Clients of that
/// transport may be unable to send a header.
pub(super) const SSE: &str = "/sse";
pub(super) const MESSAGES: &str = "/messages";

/// Host names that always refer to the local machine.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// How long the rest of an oversized body is drained. A client that sends all of it before reading then still gets the
/// response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Admission rules.
#[derive(Debug)]
pub(super) struct Admission {
    hosts: Vec<Host>,
    origins: Vec<String>,
    token: Option<Token>,
    guesses: AuthRateLimit,
    body_limit: usize,
    body_timeout: Duration,
}

/// An accepted `Host`.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    /// Accepted port; `None` matches any port, because DNS rebinding only concerns the name.
    port: Option<u16>,
}

/// Result of the admission, which the routes find in the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    /// Agent that the request speaks for.
    pub(super) agent: Option<Name>,
    /// True if the token was in the query string.
    pub(super) has_query_token: bool,
}

/// Query parameters of the older transport.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SseQuery {
    #[serde(rename = "sessionId")]
    pub(super) session_id: Option<String>,
    token: Option<String>,
    agent: Option<String>,
}

impl SseQuery {
    pub(super) fn parse(uri: &Uri) -> Result<Self, HttpError> {
        match Query::<Self>::try_from_uri(uri) {
            Ok(Query(query)) => Ok(query),
            Err(error) => Err(HttpError::BadQuery { problem: error.body_text() }),
        }
    }
}

impl Admission {
    pub(super) fn new(config: &HttpConfig, port: u16, token: Token) -> Result<Self, McpError> {
        let ours = LOOPBACK.iter().map(|name| Host { name: (*name).to_owned(), port: Some(port) });
        let mut hosts: Vec<_> = ours.collect();
        for value in &config.allowed_hosts {
            hosts.push(Host::parse(value).ok_or_else(|| McpError::BadAllowed {
                field: "host",
                value: value.clone(),
                expected: "a name, or a name and a port such as `devbox:3100`",
            })?);
        }
        let mut origins: Vec<_> = LOOPBACK.iter().map(|name| format!("http://{name}:{port}")).collect();
        for value in &config.allowed_origins {
            origins.push(normalize_origin(value).ok_or_else(|| McpError::BadAllowed {
                field: "origin",
                value: value.clone(),
                expected: "scheme, host and port such as `http://localhost:5173`",
            })?);
        }
        Ok(Self {
            hosts,
            origins,
            token: config.require_token.then_some(token),
            guesses: AuthRateLimit::new(),
            body_limit: config.body_limit,
            body_timeout: config.body_timeout,
        })
    }

    async fn check(&self, request: Request) -> Result<Request, HttpError> {
        let (mut parts, body) = request.into_parts();
        self.check_host(&parts.uri, &parts.headers)?;
        self.check_origin(&parts.headers)?;
        if parts.method == Method::OPTIONS {
            return Err(HttpError::Preflight);
        }
        let path = parts.uri.path();
        if path == HEALTH {
            return Ok(Request::from_parts(parts, Body::empty()));
        }
        let query =
            if matches!(path, SSE | MESSAGES) { SseQuery::parse(&parts.uri)? } else { SseQuery::default() };
        let has_query_token = self.check_token(&parts.headers, query.token.as_deref())?;
        // The header is removed so that no later code can log the token.
        parts.headers.remove(AUTHORIZATION);
        let agent = parse_agent(&parts.headers, query.agent.as_deref())?;
        parts.extensions.insert(Admitted { agent, has_query_token });
        let body = match parts.method {
            Method::GET | Method::HEAD | Method::DELETE => Body::empty(),
            _ => {
                check_content_type(&parts.headers)?;
                self.read_body(&parts.headers, body).await?
            }
        };
        Ok(Request::from_parts(parts, body))
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HttpError> {
        let named = single_value(headers, &HOST).and_then(Host::parse).ok_or(HttpError::NoHost)?;
        // An absolute URI in the request line takes precedence over `Host`.
        let on_line =
            uri.authority().map(|authority| Host::parse(authority.as_str()).ok_or(HttpError::NoHost));
        for host in [Some(Ok(named)), on_line].into_iter().flatten() {
            let host = host?;
            if !self.hosts.iter().any(|allowed| allowed.covers(&host)) {
                return Err(HttpError::ForeignHost);
            }
        }
        Ok(())
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), HttpError> {
        if !headers.contains_key(ORIGIN) {
            return Ok(());
        }
        match single_value(headers, &ORIGIN).and_then(normalize_origin) {
            Some(origin) if self.origins.contains(&origin) => Ok(()),
            _ => Err(HttpError::ForeignOrigin),
        }
    }

    /// Checks the token; returns true if it was in the query string.
    fn check_token(&self, headers: &HeaderMap, in_query: Option<&str>) -> Result<bool, HttpError> {
        let Some(token) = &self.token else { return Ok(in_query.is_some()) };
        let problem = match (headers.contains_key(AUTHORIZATION), in_query) {
            (true, _) if bearer_token(headers).is_some_and(|guess| token.matches(guess)) => return Ok(false),
            (false, Some(guess)) if token.matches(guess) => return Ok(true),
            (false, None) => HttpError::NoToken,
            _ => HttpError::WrongToken,
        };
        match self.guesses.record_failure() {
            Ok(()) => Err(problem),
            Err(wait) => Err(HttpError::AuthRateLimited { wait }),
        }
    }

    /// Reads the complete body, so that no handler behind this point waits for a slow client.
    async fn read_body(&self, headers: &HeaderMap, mut body: Body) -> Result<Body, HttpError> {
        let too_large = HttpError::TooLarge { limit: self.body_limit };
        let announced = single_value(headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.body_limit as u64) {
            drain_body(body).await;
            return Err(too_large);
        }
        let limited = Limited::new(&mut body, self.body_limit);
        let collected = timeout(self.body_timeout, limited.collect()).await;
        match collected {
            Ok(Ok(collected)) => Ok(Body::from(collected.to_bytes())),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                drain_body(body).await;
                Err(too_large)
            }
            Ok(Err(_)) => Err(HttpError::BrokenBody),
            Err(_) => Err(HttpError::TooSlow),
        }
    }
}

/// Runs the admission checks, as middleware in front of all routes.
pub(super) async fn admit_request(
    State(admission): State<Arc<Admission>>,
    request: Request,
    next: Next,
) -> Response {
    match admission.check(request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let authority: Authority = text.parse().ok()?;
        // `user@host` is an authority but not a host.
        if text.contains('@') || authority.host().is_empty() {
            return None;
        }
        // An invalid port must not be treated as a missing one.
        if authority.port_u16().is_none() && text.len() != authority.host().len() {
            return None;
        }
        Some(Self { name: authority.host().to_ascii_lowercase(), port: authority.port_u16() })
    }

    fn covers(&self, other: &Self) -> bool {
        let ports = self.port.zip(other.port);
        self.name == other.name && ports.is_none_or(|(ours, theirs)| ours == theirs)
    }
}

/// Normalizes an origin for comparison; `None` for a value that is not an origin, such as `null`.
fn normalize_origin(text: &str) -> Option<String> {
    let uri: Uri = text.parse().ok()?;
    let (scheme, host) = (uri.scheme_str()?, Host::parse(uri.authority()?.as_str())?);
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.ends_with('/') {
        return None;
    }
    let port = match (host.port, scheme) {
        (Some(port), _) => port,
        (None, "http") => 80,
        (None, "https") => 443,
        (None, _) => return Some(format!("{scheme}://{}", host.name)),
    };
    Some(format!("{scheme}://{}:{port}", host.name))
}

/// Returns the agent that the request names.
fn parse_agent(headers: &HeaderMap, in_query: Option<&str>) -> Result<Option<Name>, HttpError> {
    let name: HeaderName = HeaderName::from_static(AGENT_HEADER);
    let text = if headers.contains_key(&name) {
        let problem = || HttpError::BadAgent { problem: "it is given more than once or not text".to_owned() };
        Some(single_value(headers, &name).ok_or_else(problem)?)
    } else {
        in_query
    };
    text.map(Name::parse).transpose().map_err(|error| HttpError::BadAgent { problem: error.to_string() })
}

/// Rejects content types other than JSON. Without a CORS preflight, browsers can send only such other types.
fn check_content_type(headers: &HeaderMap) -> Result<(), HttpError> {
    let kind =
        single_value(headers, &CONTENT_TYPE).and_then(|value| value.split(';').next()).unwrap_or_default();
    let is_json = kind.trim().eq_ignore_ascii_case("application/json");
    let is_plain = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if is_json && is_plain { Ok(()) } else { Err(HttpError::NotJson) }
}

/// Returns the value of a header that occurs exactly once.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().map(str::trim),
        _ => None,
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = single_value(headers, &AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Reads and discards the rest of a body.
async fn drain_body(mut body: Body) {
    let _ = timeout(DRAIN_TIMEOUT, async { while let Some(Ok(_)) = body.frame().await {} }).await;
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
