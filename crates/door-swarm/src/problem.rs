//! The one place where a request is refused: status, code and sentence (§6.3).

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::Value;
use switchboard_hub::HubError;

use crate::admit::NotAdmitted;
use crate::error::SwarmError;
use crate::invite::InviteError;
use crate::wire::{ErrorBody, ErrorDetail};

/// After how many seconds to ask again for what a person, or another hub, has to do first.
const LATER: u32 = 60;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    code: &'static str,
    message: String,
    details: Option<Value>,
    retry_after: Option<u32>,
    allow: Option<&'static str>,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: None, retry_after: None, allow: None }
    }

    /// A field, or the whole, is not as it must be.
    pub(crate) fn format(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_FORMAT", message)
    }

    /// The same, with facts.
    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// A field that is missing or of another type, by its name where that can be told.
    pub(crate) fn shape(error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let (path, problem) = (error.path().to_string(), error.inner().to_string());
        let missing = problem.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let field = match (path.as_str(), missing) {
            (".", Some(missing)) => missing.to_owned(),
            (path, Some(missing)) => format!("{path}.{missing}"),
            (path, None) => path.to_owned(),
        };
        let problem = if field == "." { problem } else { format!("{field}: {problem}") };
        Self::format(problem).with(serde_json::json!({ "field": field }))
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "INVALID_FORMAT", message)
    }

    pub(crate) fn signature(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "INVALID_SIGNATURE", message)
    }

    pub(crate) fn not_authorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "NOT_AUTHORIZED", message)
    }

    pub(crate) fn not_master(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "NOT_MASTER", message)
    }

    pub(crate) fn swarm_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "SWARM_NOT_FOUND", "this agent is not in that swarm")
    }

    pub(crate) fn no_such_place() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "there is nothing here")
    }

    pub(crate) fn method(allow: &'static str) -> Self {
        let message = format!("use {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "INVALID_FORMAT", message) }
    }

    /// Too often; there is room again after so many seconds.
    pub(crate) fn rate_limited(what: &str, seconds: u32) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", format!("too many {what}"));
        let details = Some(serde_json::json!({ "retry_after": seconds }));
        Self { retry_after: Some(seconds), details, ..problem }
    }

    /// Something of ours failed; what, is in the log and not in the answer.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL_ERROR",
            "the message could not be stored; try again",
        )
    }
}

impl From<HubError> for Problem {
    fn from(error: HubError) -> Self {
        match error {
            HubError::BodyTooLarge { limit, .. } | HubError::MetadataTooLarge { limit, .. } => {
                Self::too_large(limit)
            }
            HubError::Conflict { .. } => Self::format("message_id was used for another message"),
            // Its owner sends mail for the agent on, perhaps to where this came from. That does not get better.
            HubError::Unresolved(error) => Self::format(format!("recipient gets no mail here: {error}")),
            error => {
                tracing::error!(error = %error, "a message could not be stored");
                Self::internal()
            }
        }
    }
}

impl From<InviteError> for Problem {
    fn from(error: InviteError) -> Self {
        let message = error.to_string();
        match error {
            InviteError::Signature => Self::signature(message),
            InviteError::Expired { .. } => Self::new(StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED", message),
            InviteError::Link { .. } | InviteError::Token { .. } | InviteError::Mismatch { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "INVALID_TOKEN", message)
            }
        }
    }
}

impl From<NotAdmitted> for Problem {
    fn from(error: NotAdmitted) -> Self {
        let code = match error {
            NotAdmitted::IdTaken | NotAdmitted::KeyTaken => "ALREADY_MEMBER",
            NotAdmitted::Banned
            | NotAdmitted::Denied
            | NotAdmitted::Full
            | NotAdmitted::NotProven
            | NotAdmitted::Replayed => "NOT_AUTHORIZED",
            NotAdmitted::Revoked | NotAdmitted::Unknown => "INVALID_TOKEN",
            NotAdmitted::Exhausted => "TOKEN_EXHAUSTED",
            NotAdmitted::InvitesDisabled => "INVITES_DISABLED",
            NotAdmitted::TooManyPending => "RATE_LIMITED",
        };
        let (status, retry_after) = match error {
            NotAdmitted::TooManyPending => (StatusCode::TOO_MANY_REQUESTS, Some(LATER)),
            _ => (StatusCode::FORBIDDEN, None),
        };
        Self { retry_after, ..Self::new(status, code, error.to_string()) }
    }
}

impl From<SwarmError> for Problem {
    fn from(error: SwarmError) -> Self {
        match error {
            SwarmError::Hub(error) => error.into(),
            SwarmError::Invite(error) => error.into(),
            SwarmError::UnknownSwarm { .. } => Self::swarm_not_found(),
            error => {
                tracing::error!(error = %crate::error::describe(&error), "a request failed");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let detail = ErrorDetail { code: self.code.to_owned(), message: self.message, details: self.details };
        // A struct of texts can always be written.
        let body = serde_json::to_vec(&ErrorBody { error: detail }).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            // A number of seconds: existing clients cannot read a date.
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}
