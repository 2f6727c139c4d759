//! HTTP endpoint of a model API: sends a POST, with retries if the server is overloaded.

use std::fmt;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use switchboard_core::{describe_json_error, error_chain};
use tokio::time::{Instant, sleep};

use super::error::ModelError;
use crate::redact::{Secrets, redact};

/// Maximum number of attempts per request.
const ATTEMPTS: u32 = 4;

/// Backoff before the first retry, unless the server sends `Retry-After`. The backoff doubles, plus up to half as
/// jitter.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Maximum size of a response, in bytes: a hundred times a model's longest answer.
const ANSWER_LIMIT: usize = 16 << 20;

/// Maximum length of a quoted error message, in characters.
const SAID_LIMIT: usize = 300;

/// Anthropic's HTTP status code for "overloaded".
const OVERLOADED: u16 = 529;

/// An API key. Debug output redacts the key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// A model API endpoint, with its credentials.
#[derive(Debug)]
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    secrets: Secrets,
    variable: &'static str,
    model: String,
}

impl Endpoint {
    /// Creates an endpoint.
    ///
    /// `header` carries the key, prefixed with `scheme`. `variable` is the environment variable that holds the key, for
    /// errors.
    pub(super) fn new(
        url: Url,
        key: Option<&Key>,
        (header, scheme, variable): (&'static str, &'static str, &'static str),
        model: &str,
    ) -> Result<Self, ModelError> {
        let display_url = display_url(&url);
        let mut secrets = Secrets::default();
        let mut headers = HeaderMap::new();
        if let Some(Key(key)) = key {
            secrets.add(key);
            let mut value = HeaderValue::from_str(&format!("{scheme}{key}"))
                .map_err(|_| ModelError::BadKey { variable })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(header), value);
        }
        if let Some(password) = url.password() {
            secrets.add(password);
        }
        // Follow no redirects, because a redirect could send the key to another server.
        let mut builder = Client::builder().redirect(Policy::none()).connect_timeout(Duration::from_secs(10));
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| ModelError::Unreachable {
            url: display_url,
            cause: redact(&error_chain(&error), &secrets),
        })?;
        Ok(Self { client, url, headers, secrets, variable, model: model.to_owned() })
    }

    /// Adds a header to every request.
    pub(super) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    /// Returns the model's name.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Sends a request and parses the response, with retries and backoff.
    ///
    /// The caller enforces the time limit. No retry starts after `until`.
    pub(super) async fn post<A: for<'de> Deserialize<'de>>(
        &self,
        body: &impl Serialize,
        until: Instant,
    ) -> Result<A, ModelError> {
        let body = serde_json::to_vec(body).map_err(|error| self.unreadable(&describe_json_error(&error)))?;
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let (failure, named) = match self.send(body.clone()).await {
                Ok((StatusCode::OK, _, answer)) => {
                    return serde_json::from_slice(&answer)
                        .map_err(|error| self.unreadable(&describe_json_error(&error)));
                }
                Ok((status, named, answer)) => (self.failure(status, attempt, &answer), named),
                Err(error) => (error, None),
            };
            let pause = named.unwrap_or_else(|| wait.mul_f64(1.0 + fastrand::f64() / 2.0));
            // Give up if the next retry would start after the deadline.
            if attempt == ATTEMPTS || !is_transient(&failure) || Instant::now() + pause >= until {
                return Err(failure);
            }
            tracing::info!(error = %failure, ?pause, "retrying the model request");
            sleep(pause).await;
            wait *= 2;
        }
        Err(self.unreachable("no request was sent"))
    }

    async fn send(&self, body: Vec<u8>) -> Result<(StatusCode, Option<Duration>, Vec<u8>), ModelError> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let request = request.header("content-type", "application/json").body(body);
        let response = request.send().await.map_err(|error| self.unreachable(&error_chain(&error)))?;
        let (status, named) = (response.status(), retry_after(&response));
        Ok((status, named, self.read(response).await?))
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, ModelError> {
        let mut bytes = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| self.unreachable(&error_chain(&error)))?
        {
            if bytes.len() + chunk.len() > ANSWER_LIMIT {
                return Err(self.unreadable(&format!("it is longer than {ANSWER_LIMIT} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Converts an API response with an error status into an error. No other function does this.
    fn failure(&self, status: StatusCode, attempts: u32, answer: &[u8]) -> ModelError {
        let (url, detail) = (display_url(&self.url), self.error_message(answer));
        let status = status.as_u16();
        match status {
            401 | 403 => ModelError::KeyRefused { url, status, variable: self.variable, detail },
            404 => ModelError::NotFound { url, model: self.model.clone(), detail },
            408 | 429 | OVERLOADED | 500..=599 => ModelError::Overloaded { url, status, attempts, detail },
            _ => ModelError::Refused { url, status, detail },
        }
    }

    /// Extracts the server's error message from a response, redacted and on one line.
    fn error_message(&self, answer: &[u8]) -> String {
        #[derive(Deserialize)]
        struct Envelope {
            error: ErrorBody,
        }
        #[derive(Deserialize)]
        struct ErrorBody {
            message: String,
        }
        let text = match serde_json::from_slice::<Envelope>(answer) {
            Ok(envelope) => envelope.error.message,
            Err(_) => String::from_utf8_lossy(answer).into_owned(),
        };
        let text = switchboard_core::sanitize_description(&redact(&text, &self.secrets)).text;
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(SAID_LIMIT).collect()
    }

    fn unreachable(&self, cause: &str) -> ModelError {
        ModelError::Unreachable { url: display_url(&self.url), cause: redact(cause, &self.secrets) }
    }

    /// Builds the error for a response that is invalid.
    pub(super) fn unreadable(&self, problem: &str) -> ModelError {
        ModelError::Unreadable { from: display_url(&self.url), problem: redact(problem, &self.secrets) }
    }
}

/// Returns true for a loopback URL. There, a key may be sent unencrypted, and no proxy is used.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

/// Renders a URL without its credentials and query.
fn display_url(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Returns true if a retry may succeed.
fn is_transient(error: &ModelError) -> bool {
    matches!(error, ModelError::Overloaded { .. } | ModelError::Unreachable { .. })
}

/// Parses a `Retry-After` header in seconds. The date format is not supported.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds: f64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
