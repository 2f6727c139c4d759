//! HTTP errors, and their conversion to responses.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::caller::AGENT_HEADER;
use crate::intake::Refusal;

/// All errors of this crate's HTTP code. Errors of a handler are returned inside JSON-RPC.
#[derive(Debug)]
pub(super) enum HttpError {
    /// `Host` is missing, repeated or malformed.
    NoHost,
    /// `Host` names another host: DNS rebinding.
    ForeignHost,
    /// The request comes from a page of another origin.
    ForeignOrigin,
    /// CORS preflight of a page.
    Preflight,
    /// The token is missing.
    NoToken,
    /// The token is wrong.
    WrongToken,
    /// Rate limit on wrong tokens; `wait` is in seconds.
    AuthRateLimited { wait: u64 },
    /// The agent's name is invalid.
    BadAgent { problem: String },
    /// The query is malformed.
    BadQuery { problem: String },
    /// The session belongs to another agent.
    OtherAgent,
    /// The session does not exist.
    UnknownSession,
    /// The session limit is reached.
    TooManySessions { limit: usize },
    /// The connection limit is reached.
    TooManyConnections { limit: usize },
    /// The session's queue is full.
    SessionBusy,
    /// No route has this path.
    NoSuchPath,
    /// The route does not support the method.
    WrongMethod,
    /// The body is not JSON, or is compressed.
    NotJson,
    /// The body is too large.
    TooLarge { limit: usize },
    /// The body timed out.
    TooSlow,
    /// The body was cut off.
    BrokenBody,
    /// A session could not be created.
    NoSession,
    /// The query has no session id.
    NoSessionId,
    /// `rmcp` responded with an error status and plain text.
    Refusal { status: StatusCode, message: String },
}

impl HttpError {
    /// Returns status, code, message and hint.
    fn details(self) -> (StatusCode, &'static str, String, String) {
        use StatusCode as S;

        let (status, code, message, hint) = match self {
            Self::NoHost => (
                S::BAD_REQUEST,
                "bad_host",
                "the request has no usable Host header".to_owned(),
                "send exactly one, such as `Host: 127.0.0.1:3100`".to_owned(),
            ),
            Self::ForeignHost => (
                S::FORBIDDEN,
                "host_not_allowed",
                "the Host header names another host".to_owned(),
                "connect to 127.0.0.1 or localhost, or add the host to `http.allowedHosts` in your settings"
                    .to_owned(),
            ),
            Self::ForeignOrigin => (
                S::FORBIDDEN,
                "origin_not_allowed",
                "requests from this Origin are not allowed".to_owned(),
                "call from a program, or add the origin to `http.allowedOrigins` in your settings".to_owned(),
            ),
            Self::Preflight => (
                S::FORBIDDEN,
                "preflight_refused",
                "foreign pages may not call this server".to_owned(),
                "call from a program instead of a page".to_owned(),
            ),
            Self::NoToken => (
                S::UNAUTHORIZED,
                "token_missing",
                "the request has no token".to_owned(),
                "send `Authorization: Bearer <token>`; the token is in .switchboard/auth_token".to_owned(),
            ),
            Self::WrongToken => (
                S::UNAUTHORIZED,
                "token_wrong",
                "the token is not this server's".to_owned(),
                "read .switchboard/auth_token again: a server that starts may make a new one".to_owned(),
            ),
            Self::AuthRateLimited { wait } => (
                S::TOO_MANY_REQUESTS,
                "too_many_wrong_tokens",
                "there were too many requests with a wrong token".to_owned(),
                format!("wait {wait} s, then read .switchboard/auth_token again"),
            ),
            Self::BadAgent { problem } => (
                S::BAD_REQUEST,
                "bad_agent",
                format!("{AGENT_HEADER}: {problem}"),
                "send the name that the agent is registered under".to_owned(),
            ),
            Self::BadQuery { problem } => (
                S::BAD_REQUEST,
                "bad_query",
                format!("the query is malformed: {problem}"),
                "send each of `sessionId`, `token` and `agent` at most once".to_owned(),
            ),
            Self::OtherAgent => (
                S::FORBIDDEN,
                "other_agent",
                "the session belongs to another agent".to_owned(),
                format!("send the {AGENT_HEADER} of that session, or start a new session"),
            ),
            Self::UnknownSession => (
                S::NOT_FOUND,
                "session_unknown",
                "there is no such session, or it has ended".to_owned(),
                "start a new session".to_owned(),
            ),
            Self::TooManySessions { limit } => (
                S::TOO_MANY_REQUESTS,
                "too_many_sessions",
                format!("there are already {limit} sessions"),
                "end sessions that are no longer needed, or try again later".to_owned(),
            ),
            Self::TooManyConnections { limit } => (
                S::SERVICE_UNAVAILABLE,
                "too_many_connections",
                format!("there are already {limit} connections"),
                "close connections that are no longer needed, or try again later".to_owned(),
            ),
            Self::SessionBusy => (
                S::TOO_MANY_REQUESTS,
                "session_busy",
                "the session has too many messages waiting".to_owned(),
                "wait for answers on the stream, then send it again".to_owned(),
            ),
            Self::NoSuchPath => (
                S::NOT_FOUND,
                "path_unknown",
                "no route has this path".to_owned(),
                "MCP is at /mcp; older clients use /sse; /health reports its status".to_owned(),
            ),
            Self::WrongMethod => (
                S::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this path does not support that method".to_owned(),
                "use a method that the header Allow names".to_owned(),
            ),
            Self::NotJson => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                "the body must be uncompressed JSON".to_owned(),
                "send `Content-Type: application/json` and no `Content-Encoding`".to_owned(),
            ),
            Self::TooLarge { limit } => (
                S::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("the body has more than {limit} bytes"),
                "send a shorter message".to_owned(),
            ),
            Self::TooSlow => (
                S::REQUEST_TIMEOUT,
                "body_too_slow",
                "the body timed out".to_owned(),
                "send the request again, all at once".to_owned(),
            ),
            Self::BrokenBody => (
                S::BAD_REQUEST,
                "body_broken",
                "the body was cut off".to_owned(),
                "send the request again".to_owned(),
            ),
            Self::NoSession => (
                S::INTERNAL_SERVER_ERROR,
                "no_session",
                "a session could not be created".to_owned(),
                "retry; see the server's log for the cause".to_owned(),
            ),
            Self::NoSessionId => (
                S::BAD_REQUEST,
                "session_missing",
                "the URL has no `sessionId`".to_owned(),
                "post to the URL from the `endpoint` event of /sse".to_owned(),
            ),
            Self::Refusal { status, message } => {
                let hint = match status {
                    S::METHOD_NOT_ALLOWED => "use a method that the header Allow names",
                    _ => "change the request as the message says",
                };
                (status, "refused", message, hint.to_owned())
            }
        };
        (status, code, message, hint)
    }

    /// Builds the JSON body.
    fn into_json(self) -> (StatusCode, String) {
        let (status, code, message, hint) = self.details();
        tracing::debug!(status = status.as_u16(), code, "refused a request");
        (status, json!({ "error": { "code": code, "message": message, "hint": hint } }).to_string())
    }

    /// Builds the complete response as text, for a connection on which no request is read.
    pub(super) fn into_raw_response(self) -> String {
        let (status, body) = self.into_json();
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    /// Returns true if the connection is closed after the response, because more bad requests would follow.
    fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::AuthRateLimited { .. } | Self::TooLarge { .. } | Self::TooSlow | Self::BrokenBody
        )
    }

    /// Returns the header that the status requires.
    fn header(&self) -> Option<(http::HeaderName, HeaderValue)> {
        match self {
            Self::NoToken | Self::WrongToken => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"switchboard\"")))
            }
            Self::AuthRateLimited { wait } => Some((RETRY_AFTER, HeaderValue::from(*wait))),
            Self::TooManySessions { .. } => Some((RETRY_AFTER, HeaderValue::from_static("60"))),
            Self::SessionBusy => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => None,
        }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let (header, ends_connection) = (self.header(), self.ends_connection());
        let (status, body) = self.into_json();
        let mut response = json_response(status, body);
        response.headers_mut().extend(header);
        if ends_connection {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl IntoResponse for Refusal {
    /// Responds with the JSON-RPC error. A message with invalid params is still a valid HTTP request.
    fn into_response(self) -> Response {
        let status = if self.is_about_params() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        json_response(status, self.to_json())
    }
}

/// Early response, which `?` returns from a route.
pub(super) struct Rejection(pub(super) Response);

impl From<HttpError> for Rejection {
    fn from(problem: HttpError) -> Self {
        Self(problem.into_response())
    }
}

impl From<Refusal> for Rejection {
    fn from(refused: Refusal) -> Self {
        Self(refused.into_response())
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.0
    }
}

/// Builds a response with a JSON body.
pub(super) fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
