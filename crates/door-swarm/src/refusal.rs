//! HTTP refusals: status, code and message (§6.3).
//!
//! Every refused request is answered with a [`Refusal`].

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::Value;
use switchboard_core::{describe_field_error, describe_json_error};
use switchboard_hub::HubError;

use crate::admission::AdmissionError;
use crate::error::SwarmError;
use crate::invite::InviteError;
use crate::wire::{ErrorBody, ErrorDetail};

/// `Retry-After` in seconds for a request that waits for a person.
const PENDING_RETRY_SECS: u32 = 60;

/// The refusal of a request.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    code: &'static str,
    message: String,
    details: Option<Value>,
    retry_after: Option<u32>,
    allow: Option<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: None, retry_after: None, allow: None }
    }

    /// Creates the refusal of an invalid field or body.
    pub(crate) fn invalid_format(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_FORMAT", message)
    }

    /// Adds details to the refusal.
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Creates the refusal of a missing or wrongly typed field, with the field's name if it is known.
    pub(crate) fn from_serde(error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let (path, problem) = (error.path().to_string(), error.inner().to_string());
        let missing = problem.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let field = match (path.as_str(), missing) {
            (".", Some(missing)) => missing.to_owned(),
            (path, Some(missing)) => format!("{path}.{missing}"),
            (path, None) => path.to_owned(),
        };
        let problem = match (field.as_str(), missing) {
            (".", _) => describe_json_error(error.inner()),
            (field, Some(_)) => format!("{field} is missing"),
            (field, None) => format!("{field} {}", describe_field_error(error.inner())),
        };
        Self::invalid_format(problem).with_details(serde_json::json!({ "field": field }))
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "INVALID_FORMAT", message)
    }

    pub(crate) fn invalid_signature(message: impl Into<String>) -> Self {
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

    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "no such resource")
    }

    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let message = format!("use {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "INVALID_FORMAT", message) }
    }

    /// Creates the refusal of a request that exceeds the rate limit; a retry is allowed after `seconds`.
    pub(crate) fn rate_limited(what: &str, seconds: u32) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", format!("too many {what}"));
        let details = Some(serde_json::json!({ "retry_after": seconds }));
        Self { retry_after: Some(seconds), details, ..problem }
    }

    /// Creates the refusal for an internal failure. The cause is logged and is not part of the answer.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL_ERROR",
            "the message could not be stored; try again",
        )
    }
}

impl From<HubError> for Refusal {
    fn from(error: HubError) -> Self {
        match error {
            HubError::BodyTooLarge { limit, .. } | HubError::MetadataTooLarge { limit, .. } => {
                Self::too_large(limit)
            }
            HubError::Conflict { .. } => Self::invalid_format("message_id was used for another message"),
            // The owner forwards the messages of this agent, perhaps to the sender itself. A retry does not help.
            HubError::Unresolved(error) => {
                Self::invalid_format(format!("recipient has no mailbox here: {error}"))
            }
            error => {
                tracing::error!(error = %error, "a message could not be stored");
                Self::internal()
            }
        }
    }
}

impl From<InviteError> for Refusal {
    fn from(error: InviteError) -> Self {
        let message = error.to_string();
        match error {
            InviteError::Signature => Self::invalid_signature(message),
            InviteError::Expired { .. } => Self::new(StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED", message),
            InviteError::Link { .. } | InviteError::Token { .. } | InviteError::Mismatch { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "INVALID_TOKEN", message)
            }
        }
    }
}

impl From<AdmissionError> for Refusal {
    fn from(error: AdmissionError) -> Self {
        let code = match error {
            AdmissionError::IdTaken | AdmissionError::KeyTaken => "ALREADY_MEMBER",
            AdmissionError::Banned
            | AdmissionError::Denied
            | AdmissionError::Full
            | AdmissionError::NotProven
            | AdmissionError::Replayed => "NOT_AUTHORIZED",
            AdmissionError::Revoked | AdmissionError::Unknown => "INVALID_TOKEN",
            AdmissionError::Exhausted => "TOKEN_EXHAUSTED",
            AdmissionError::InvitesDisabled => "INVITES_DISABLED",
            AdmissionError::TooManyPending => "RATE_LIMITED",
        };
        let (status, retry_after) = match error {
            AdmissionError::TooManyPending => (StatusCode::TOO_MANY_REQUESTS, Some(PENDING_RETRY_SECS)),
            _ => (StatusCode::FORBIDDEN, None),
        };
        Self { retry_after, ..Self::new(status, code, error.to_string()) }
    }
}

impl From<SwarmError> for Refusal {
    fn from(error: SwarmError) -> Self {
        match error {
            SwarmError::Hub(error) => error.into(),
            SwarmError::Invite(error) => error.into(),
            SwarmError::UnknownSwarm { .. } => Self::swarm_not_found(),
            error => {
                tracing::error!(error = %switchboard_core::error_chain(&error), "a request failed");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let detail = ErrorDetail { code: self.code.to_owned(), message: self.message, details: self.details };
        // A struct of strings always serializes.
        let body = serde_json::to_vec(&ErrorBody { error: detail }).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            // The value is a number of seconds, because existing clients cannot parse a date.
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}
