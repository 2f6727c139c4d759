//! What every request has to pass before any route sees it.
//!
//! In this order: it is meant for us (`Host`), it does not come from a foreign page (`Origin`), it knows the
//! token, it says in whose name it comes, and what it brings is JSON of bounded size, brought in time.

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

/// The path that needs no token.
pub(super) const HEALTH: &str = "/health";
/// The paths of the older transport, whose clients may not be able to send a header.
pub(super) const SSE: &str = "/sse";
pub(super) const MESSAGES: &str = "/messages";

/// The names of this machine that only it can mean.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// How long a body that is too large is still read, so that a client which sends it all before it reads
/// gets to see the answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// What requests are measured by.
#[derive(Debug)]
pub(super) struct Admission {
    hosts: Vec<Host>,
    origins: Vec<String>,
    token: Option<Token>,
    guesses: AuthRateLimit,
    body_limit: usize,
    body_timeout: Duration,
}

/// A host that requests may be meant for.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    /// None stands for any: what leads a browser here is the name.
    port: Option<u16>,
}

/// What a request turned out to be, for the routes.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    /// The agent in whose name it comes.
    pub(super) agent: Option<Name>,
    /// Whether the token stood in the address.
    pub(super) has_query_token: bool,
}

/// What the addresses of the older transport may carry.
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
        // From here on nobody needs it, and what nobody has nobody prints.
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
        // A request line can name a host as well, and then it is that one which counts.
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

    /// Checks the token, and says whether it stood in the address.
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

    /// Reads the whole body, so that behind this point no client can keep anyone waiting for the rest of it.
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

/// The layer in front of every route.
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
        // `user@host` is an authority too, and no host.
        if text.contains('@') || authority.host().is_empty() {
            return None;
        }
        // A port that is no number is not the same as none.
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

/// Brings an origin into the form in which origins are compared; `None` for what is none, such as `null`.
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

/// The agent that the request names.
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

/// Only JSON passes: whatever a browser sends without asking first is of another type.
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

/// The value of a header that is there exactly once.
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

/// Takes in what is left of a body, and keeps nothing of it.
async fn drain_body(mut body: Body) {
    let _ = timeout(DRAIN_TIMEOUT, async { while let Some(Ok(_)) = body.frame().await {} }).await;
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
